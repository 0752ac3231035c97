// Package promql holds the part of Prometheus that an autoscaler needs: the series that scrapes and recording rules
// bring, the moments at which they become stale, and queries over them. Prometheus' own parser reads queries. Read
// refuses the parts of the language that this package does not evaluate. Begin to read at Store and Query.
package promql
