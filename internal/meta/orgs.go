package meta

import (
	"context"
	"iter"
)

// orgPage is how many orgs are read at a time.
const orgPage = 1000

// AllOrgs yields every org by name, read in pages; orgs that are created
// meanwhile may be among them. An error is the last that it yields.
func AllOrgs(ctx context.Context, s Orgs) iter.Seq2[Org, error] {
	return func(yield func(Org, error) bool) {
		for after := ""; ; {
			page, err := s.ListOrgs(ctx, after, orgPage)
			if err != nil {
				yield(Org{}, err)
				return
			}
			for _, org := range page {
				after = org.Name
				if !yield(org, nil) {
					return
				}
			}
			if len(page) < orgPage {
				return
			}
		}
	}
}
