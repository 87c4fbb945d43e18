package webhook

import (
	"context"

	"github.com/cairnstate/cairn/internal/meta"
)

// Reseal encrypts the secrets of all endpoints that were stored plainly, or
// encrypted with an older key, with the first key, so that the older key can go.
// left counts those that no key here opens. Without a key it does nothing.
func (a *Endpoints) Reseal(ctx context.Context) (made, left int, err error) {
	if a.Secrets == nil {
		return 0, 0, nil
	}
	for org, err := range meta.AllOrgs(ctx, a.Meta) {
		if err != nil {
			return made, left, err
		}
		err := a.Each(ctx, org.ID, func(w meta.Webhook) error {
			done, err := a.reseal(ctx, w)
			if done {
				made++
			} else if err == nil && !a.Secrets.Current(w.Secret) {
				left++
			}
			return err
		})
		if err != nil {
			return made, left, err
		}
	}
	return made, left, nil
}

// reseal encrypts one secret anew; false says that it need not, or cannot, be.
func (a *Endpoints) reseal(ctx context.Context, w meta.Webhook) (bool, error) {
	if a.Secrets.Current(w.Secret) {
		return false, nil
	}
	plain, err := openSecret(a.Secrets, w)
	if err != nil {
		return false, nil
	}
	sealed, err := sealSecret(a.Secrets, w.ID, string(plain))
	if err != nil {
		return false, err
	}
	return true, a.Meta.SealWebhook(ctx, w.ID, w.Secret, sealed)
}
