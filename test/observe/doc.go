// Package observe tests that an OpenTelemetry Collector's own OTLP receiver accepts what windtunnel sends. make
// test-observe runs the tests. The package is a module of its own, so that windtunnel's module does not depend on the
// collector's libraries.
package observe
