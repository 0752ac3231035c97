// Package predict measures decisions that go by predicted latencies.
package predict
