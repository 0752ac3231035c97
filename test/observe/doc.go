// Package observe holds the tests that have an OpenTelemetry Collector's own OTLP receiver
// take what windtunnel sends; make test-observe runs them. It is a module of its own, so
// that the collector's libraries stay out of windtunnel's.
package observe
