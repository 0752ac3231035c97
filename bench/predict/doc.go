// Package predict measures decisions that use predicted latencies.
package predict
