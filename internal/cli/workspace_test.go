package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/sdk/go/checkpoint"
)

// TestLeftOut names what no policy leaves out, however much a policy does.
func TestLeftOut(t *testing.T) {
	var none, excluded, both, many checkpoint.List
	for i := range 20_000 {
		excluded.Add(fmt.Sprintf("r/%d", i), checkpoint.ReasonExcluded)
	}
	both.AddAll(excluded)
	both.Add("r/link", "a link")
	many.AddAll(excluded)
	for i := range 12_000 {
		many.Add(fmt.Sprintf("r/link%d", i), "a link")
	}
	for name, test := range map[string]struct {
		list    checkpoint.List
		partial bool
		says    []string
	}{
		"nothing":            {none, false, nil},
		"by the policy":      {excluded, false, []string{"excluded by the policy: 20000 paths"}},
		"and one other":      {both, true, []string{"excluded by the policy: 20000 paths", `left out: "r/link": a link`}},
		"and too many of it": {many, true, []string{"excluded by the policy: 20000 paths", `"r/link0"`, "and 7000 other paths were left out"}},
	} {
		var out bytes.Buffer
		if got := leftOut(&out, test.list); got != test.partial {
			t.Errorf("%s: partial is %v", name, got)
		}
		for _, says := range test.says {
			if !strings.Contains(out.String(), says) {
				t.Errorf("%s: %.300q does not say %q", name, out.String(), says)
			}
		}
		if test.says == nil && out.Len() > 0 {
			t.Errorf("%s: %q", name, out.String())
		}
	}
}
