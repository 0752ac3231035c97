// Package promql is as much of Prometheus as an autoscaler sees of it: the series that
// scrapes and recording rules bring, what is stale of them, and queries over them. Queries are
// read by Prometheus' own parser; what of the language is not worked out here is
// refused when a query is read.
package promql
