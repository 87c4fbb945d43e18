package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/server"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/webhook"
)

func newWebhook(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "webhook", Short: "Manage the endpoints that events are delivered to",
		Long: `Manage the endpoints that events of an org are delivered to. These commands need the
storage: they are the operator's. With a token, use REST under /api/webhooks.
A running server follows within seconds.`,
	}
	cmd.AddCommand(newWebhookCreate(env), newWebhookList(env), newWebhookDelete(env), newWebhookEnable(env), newWebhookDisable(env),
		newWebhookRotate(env), newWebhookTest(env), newWebhookDeliveries(env))
	return cmd
}

// hooks is the storage with one org, as the webhook commands use it.
type hooks struct {
	*webhook.Endpoints
	op  *service.Operator
	org meta.Org
}

// webhookFlags adds the flags that say which org, and returns how to run a
// function on its endpoints.
func webhookFlags(cmd *cobra.Command, env Env) func(ctx context.Context, run func(hooks) error) error {
	load := settings(cmd, env, true)
	name := ""
	cmd.Flags().StringVar(&name, "org", "", "the `ORG` that owns the webhooks (CAIRN_ORG)")
	return func(ctx context.Context, run func(hooks) error) error {
		name := first(name, env.Getenv("CAIRN_ORG"), env.Getenv("PIERRE_ORG"))
		if name == "" {
			return usagef("give the org with --org or CAIRN_ORG")
		}
		return withStorage(ctx, env, load, func(st *server.Storage) error {
			h := hooks{Endpoints: st.Endpoints(), op: operator(st, env)}
			h.Now = env.Now
			var err error
			if h.org, err = h.op.Org(ctx, name); err != nil {
				return err
			}
			return run(h)
		})
	}
}

// by begins the Changes that the commands make.
func (h *hooks) by() meta.Change { return meta.Change{Org: h.org.ID, Route: "cairn webhook"} }

// find returns the endpoint with a public id.
func (h *hooks) find(ctx context.Context, id string) (meta.Webhook, error) {
	number, ok := webhook.ParseID(id)
	if !ok {
		return meta.Webhook{}, service.Refuse(service.NotFound, "%.80q is no id of a webhook; list them with `cairn webhook list`", id)
	}
	return h.Get(ctx, h.org.ID, number)
}

// row is an endpoint as printed.
func (h *hooks) row(ctx context.Context, w meta.Webhook, secret string) (map[string]any, error) {
	last, err := h.LastEvent(ctx, w)
	if err != nil {
		return nil, err
	}
	row := map[string]any{
		"id": webhook.PublicID(w.ID), "url": w.URL, "events": eventNames(w), "mute_ephemeral": w.MuteEphemeral,
		"enabled": w.Enabled, "last_event_id": last, "created_at": stamp(w.CreatedAt),
	}
	if w.Repo != 0 {
		r, err := h.Meta.Repo(ctx, w.Repo)
		if err != nil {
			return nil, err
		}
		row["repo"] = r.Name
	}
	if w.Reason != "" {
		row["disabled_reason"] = w.Reason
	}
	if !w.FailingSince.IsZero() {
		row["failing_since"] = stamp(w.FailingSince)
	}
	if secret != "" {
		row["secret"] = secret
	}
	return row, nil
}

func eventNames(w meta.Webhook) []string {
	if len(w.Events) == 0 {
		return []string{"*"}
	}
	return w.Events
}

func newWebhookCreate(env Env) *cobra.Command {
	spec := webhook.Spec{Enabled: true}
	repo, secretFile, asJSON := "", "", false
	cmd := &cobra.Command{
		Use: "create URL", Short: "Deliver events from now on to a URL", Args: cobra.ExactArgs(1),
		Long: `Deliver the org's events from now on to a URL. The id and the secret that deliveries
are signed with are printed; the secret is not told again.`,
	}
	with := webhookFlags(cmd, env)
	f := cmd.Flags()
	f.StringVar(&repo, "repo", "", "only events of this repository (`NAME`)")
	f.StringSliceVar(&spec.Events, "event", nil, "only events of this `TYPE`; may be given more than once (default all)")
	f.BoolVar(&spec.MuteEphemeral, "mute-ephemeral", false, "leave out events of ephemeral branches")
	f.StringVar(&secretFile, "secret-file", "", "sign with the secret in this `FILE` (default: a new one)")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		spec.URL = args[0]
		if secretFile != "" {
			text, err := env.ReadFile(secretFile)
			if err != nil {
				return usagef("--secret-file: cannot read %q", secretFile)
			}
			spec.Secret = strings.TrimSpace(string(text))
		}
		return with(c.Context(), func(h hooks) error {
			if repo != "" {
				_, r, err := h.op.Repo(c.Context(), h.org.Name, repo)
				if err != nil {
					return err
				}
				spec.Repo = r.ID
			}
			w, secret, err := h.Create(c.Context(), h.by(), spec)
			if err != nil {
				return err
			}
			return h.print(c.Context(), env, w, secret, asJSON)
		})
	}
	return cmd
}

// print prints one endpoint, with its secret when it is new.
func (h *hooks) print(ctx context.Context, env Env, w meta.Webhook, secret string, asJSON bool) error {
	if asJSON {
		row, err := h.row(ctx, w, secret)
		if err != nil {
			return err
		}
		return printJSON(env.Stdout, row)
	}
	_, err := fmt.Fprintf(env.Stdout, "%s\t%s\n", webhook.PublicID(w.ID), secret)
	return err
}

func newWebhookList(env Env) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{Use: "list", Short: "List the webhooks of an org", Args: cobra.NoArgs}
	with := webhookFlags(cmd, env)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, _ []string) error {
		return with(c.Context(), func(h hooks) error {
			rows := []map[string]any{}
			err := h.Each(c.Context(), h.org.ID, func(w meta.Webhook) error {
				if asJSON {
					row, err := h.row(c.Context(), w, "")
					rows = append(rows, row)
					return err
				}
				fmt.Fprintf(env.Stdout, "%s\t%s\t%s\t%s\n", webhook.PublicID(w.ID), w.URL, strings.Join(eventNames(w), ","), webhookState(w))
				return nil
			})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(env.Stdout, map[string]any{"webhooks": rows})
			}
			return nil
		})
	}
	return cmd
}

func webhookState(w meta.Webhook) string {
	switch {
	case !w.Enabled:
		return strings.TrimSuffix("disabled: "+w.Reason, ": ")
	case !w.FailingSince.IsZero():
		return "failing since " + stamp(w.FailingSince)
	}
	return "enabled"
}

func newWebhookDelete(env Env) *cobra.Command {
	cmd := &cobra.Command{Use: "delete ID", Short: "Delete a webhook; what waits for it is not delivered", Args: cobra.ExactArgs(1)}
	with := webhookFlags(cmd, env)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return with(c.Context(), func(h hooks) error {
			w, err := h.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			return h.Delete(c.Context(), h.by(), w.ID)
		})
	}
	return cmd
}

func newWebhookEnable(env Env) *cobra.Command {
	return webhookSwitch(env, "enable", "Enable a webhook again; what waits for it is delivered", true)
}

func newWebhookDisable(env Env) *cobra.Command {
	return webhookSwitch(env, "disable", "Stop deliveries to a webhook; events wait until it is enabled", false)
}

func webhookSwitch(env Env, name, short string, enabled bool) *cobra.Command {
	cmd := &cobra.Command{Use: name + " ID", Short: short, Args: cobra.ExactArgs(1)}
	with := webhookFlags(cmd, env)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return with(c.Context(), func(h hooks) error {
			w, err := h.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			spec := webhook.SpecOf(w)
			spec.Enabled = enabled
			_, err = h.Update(c.Context(), h.by(), w.ID, spec)
			return err
		})
	}
	return cmd
}

func newWebhookRotate(env Env) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{Use: "rotate ID", Short: "Give a webhook a new secret and print it", Args: cobra.ExactArgs(1)}
	with := webhookFlags(cmd, env)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return with(c.Context(), func(h hooks) error {
			w, err := h.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			spec := webhook.SpecOf(w)
			spec.Secret = webhook.NewSecret()
			if w, err = h.Update(c.Context(), h.by(), w.ID, spec); err != nil {
				return err
			}
			return h.print(c.Context(), env, w, spec.Secret, asJSON)
		})
	}
	return cmd
}

func newWebhookTest(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "test ID", Short: "Send a test event to a webhook from this machine", Args: cobra.ExactArgs(1),
		Long: "Send an event of type \"ping\" to a webhook from this machine, signed like any other, and say what it answered.",
	}
	with := webhookFlags(cmd, env)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return with(c.Context(), func(h hooks) error {
			w, err := h.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			out, err := h.Ping(c.Context(), w)
			if err != nil {
				return err
			}
			if !out.Delivered {
				return fmt.Errorf("not delivered: %s", out.Error)
			}
			_, err = fmt.Fprintf(env.Stdout, "delivered: status %d after %d ms\n", out.Status, out.Took.Milliseconds())
			return err
		})
	}
	return cmd
}

func newWebhookDeliveries(env Env) *cobra.Command {
	cmd := &cobra.Command{
		Use: "deliveries ID", Short: "Show what became of recent events at a webhook, the newest first", Args: cobra.ExactArgs(1),
		Long: "Show what became of recent events at a webhook, the newest first: event, type, state, attempts, time of the last attempt, and why it failed.",
	}
	with := webhookFlags(cmd, env)
	cmd.RunE = func(c *cobra.Command, args []string) error {
		return with(c.Context(), func(h hooks) error {
			w, err := h.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			list, err := h.Meta.Deliveries(c.Context(), meta.DeliveryQuery{Webhook: w.ID, Repo: w.Repo, Limit: meta.KeptDeliveries})
			if err != nil {
				return err
			}
			for _, d := range list {
				fmt.Fprintf(env.Stdout, "%s\t%s\t%s\t%d\t%s\t%s\n", service.Deliveries{Webhook: w}.EventID(d), d.Type, d.State, d.Attempts, stamp(d.At), d.Error)
			}
			return nil
		})
	}
	return cmd
}
