package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/obs"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/upstream"
	"github.com/cairnstate/cairn/internal/webhook"
)

// headerWait bounds how long a client may take to send a request's header.
const headerWait = 30 * time.Second

// Server is one running Cairn. Make it with New, then call Listen, Serve and, to
// end it, Shutdown or Close.
type Server struct {
	cfg       config.Config
	log       *slog.Logger
	storage   *Storage
	service   *service.Service
	metrics   *obs.Metrics
	upstreams *upstream.Syncer
	dev       *DevTLS
	cert      atomic.Pointer[tls.Certificate]

	main, admin     *http.Server
	mainLn, adminLn net.Listener
	stopping        atomic.Bool
	stop            chan struct{} // closed when the server stops
	stopOnce        sync.Once
	webhooks        *webhook.Deliverer
	background      sync.WaitGroup
	stopBackground  context.CancelFunc
	either          bool
}

// Option changes how a Server is made.
type Option func(*Server)

// BothProtocols makes the server answer TLS and plain HTTP on one port: the first
// byte of a connection decides. It needs DevTLS in the configuration.
func BothProtocols() Option { return func(s *Server) { s.either = true } }

// New opens the storage and composes the handlers. version is what metrics and
// protocol agents name.
func New(ctx context.Context, cfg config.Config, log *slog.Logger, version string, opts ...Option) (*Server, error) {
	s := &Server{cfg: cfg, log: log, metrics: obs.NewMetrics(version), stop: make(chan struct{})}
	for _, o := range opts {
		o(s)
	}
	verifier, err := auth.NewVerifier(auth.Options{Grace: cfg.TokenGrace, Strict: cfg.StrictScopes})
	if err != nil {
		return nil, &config.UsageError{Setting: "token-grace", Reason: err.Error()}
	}
	if err := s.loadTLS(); err != nil {
		return nil, err
	}
	if s.storage, err = OpenStorage(ctx, cfg, UseCache); err != nil {
		return nil, err
	}
	s.metrics.CountCorruption(func() int64 { return s.storage.objects.CorruptCount() + s.storage.Content.CorruptCount() })
	endpoints := s.storage.Endpoints()
	s.webhooks = webhook.New(webhook.Config{
		Feed: s.storage.Feed, Sender: endpoints.Sender, Process: s.storage.process, Report: s.failed, DisableAfter: cfg.WebhookDisableAfter,
	})
	endpoints.Changed = s.webhooks.Changed
	if s.upstreams, err = s.openUpstreams(); err != nil {
		return nil, errors.Join(err, s.storage.Close())
	}
	s.countBackground()
	s.service = service.New(service.Config{
		Meta: s.storage.Meta, Engine: s.storage.Engine, Verifier: verifier, AnyName: cfg.AnyRepoName, DefaultNotesOnly: cfg.DefaultNotesOnly,
		Rates: service.Rates{Org: int(cfg.OrgRate), Subject: int(cfg.SubjectRate)},
		Feed:  s.storage.Feed, Endpoints: endpoints,
		Secrets: s.storage.Secrets, Upstreams: s.upstreams,
		Checkpoints: s.storage.Checkpoints,
	})
	s.main = s.httpServer(s.routes(version))
	if cfg.AdminListen != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", s.metrics.Handler())
		s.admin = s.httpServer(mux)
	}
	return s, nil
}

// Storage is the storage the server works on.
func (s *Server) Storage() *Storage { return s.storage }

// DevTLS is the development authority, nil without --dev-tls.
func (s *Server) DevTLS() *DevTLS { return s.dev }

func (s *Server) httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerWait,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// loadTLS prepares the certificate that connections are answered with.
func (s *Server) loadTLS() error {
	switch {
	case s.cfg.DevTLS:
		dev, err := NewDevTLS(filepath.Join(s.cfg.Data, "tls"), s.cfg.TLSHosts)
		if err != nil {
			return err
		}
		s.dev = dev
		s.cert.Store(&dev.Certificate)
	case s.cfg.TLSCert != "":
		return s.ReloadTLS()
	}
	return nil
}

// ReloadTLS reads the certificate files again; on an error the old certificate
// stays in use.
func (s *Server) ReloadTLS() error {
	if s.cfg.TLSCert == "" {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(s.cfg.TLSCert, s.cfg.TLSKey)
	if err != nil {
		return &config.UsageError{Setting: "tls-cert", Reason: "the certificate and its key cannot be used: " + err.Error()}
	}
	s.cert.Store(&cert)
	return nil
}

// Listen takes the addresses, so that URL is known, and starts what runs beside
// requests. Connections are answered once Serve is called.
func (s *Server) Listen() error {
	ln, err := listen(s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.cfg.Listen, err)
	}
	if s.cert.Load() != nil {
		conf := &tls.Config{
			MinVersion:     tls.VersionTLS12,
			NextProtos:     []string{"h2", "http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.cert.Load(), nil },
		}
		if s.either {
			ln = listenEither(ln, conf)
		} else {
			ln = tls.NewListener(ln, conf)
		}
	}
	s.mainLn = ln
	if s.admin != nil {
		if s.adminLn, err = net.Listen("tcp", s.cfg.AdminListen); err != nil {
			ln.Close()
			return fmt.Errorf("listen on %s: %w", s.cfg.AdminListen, err)
		}
		s.background.Go(func() {
			if err := s.admin.Serve(s.adminLn); !errors.Is(err, http.ErrServerClosed) {
				s.log.Error("admin listener ended", "err", err)
			}
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stopBackground = cancel
	s.background.Go(func() { s.storage.Engine.Run(ctx, s.failed) })
	s.background.Go(func() { s.storage.Feed.Run(ctx, s.failed) })
	s.background.Go(func() {
		s.storage.Content.Run(ctx, content.Background{Report: s.failed, Roots: s.storage.Checkpoints.Live, Swept: s.storage.Checkpoints.ForgetBlobs})
	})
	s.background.Go(func() {
		s.resealServerKeys(ctx)
		s.resealWebhooks(ctx)
		s.webhooks.Run(ctx)
	})
	s.background.Go(func() { s.upstreams.Run(ctx) })
	return nil
}

// failed logs a fault of what no request waits for.
func (s *Server) failed(err error) { s.log.Error("background work failed", "err", err) }

// stopped says that the server takes no new work; streams end.
func (s *Server) stopped() {
	s.stopping.Store(true)
	s.stopOnce.Do(func() { close(s.stop) })
}

// URL is the base URL that clients use.
func (s *Server) URL() string {
	if s.cfg.PublicURL != "" {
		return s.cfg.PublicURL
	}
	return s.LocalURL()
}

// LocalURL is the base URL on this machine.
func (s *Server) LocalURL() string {
	scheme := "http"
	if s.cert.Load() != nil && !s.either {
		scheme = "https"
	}
	return scheme + "://" + s.address()
}

// TLSURL is the base URL over TLS, "" when the server has no certificate.
func (s *Server) TLSURL() string {
	if s.cert.Load() == nil {
		return ""
	}
	return "https://" + s.address()
}

func (s *Server) address() string {
	host, port, _ := net.SplitHostPort(s.mainLn.Addr().String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// Serve answers until Shutdown or Close; it then returns nil.
func (s *Server) Serve() error {
	err := s.main.Serve(s.mainLn)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown refuses new connections, lets requests under way finish until ctx
// ends, then closes everything.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopped()
	err := s.main.Shutdown(ctx)
	return errors.Join(err, s.Close())
}

// Close ends the server at once.
func (s *Server) Close() error {
	s.stopped()
	err := s.main.Close()
	if s.admin != nil {
		err = errors.Join(err, s.admin.Close())
	}
	if s.stopBackground != nil {
		s.stopBackground()
	}
	s.background.Wait()
	return errors.Join(err, s.storage.Close())
}
