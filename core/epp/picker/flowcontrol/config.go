package flowcontrol

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/windtunnel/windtunnel/core/machine"
)

// Defaults of the real picker.
const (
	DefaultBandMaxBytes    int64        = 1_000_000_000
	DefaultBandMaxRequests int64        = 5000
	DefaultRequestTTL      machine.Time = 60 * machine.Second
)

// Config is the flowControl section of EndpointPickerConfig with its plug-in references resolved. Start from
// DefaultConfig and overwrite the values in the file. NewController sets the defaults of bands and validates.
type Config struct {
	// MaxBytes and MaxRequests limit the waiting requests of all bands together. 0 is no limit.
	MaxBytes, MaxRequests int64

	// RequestTTL is how long a request may wait (defaultRequestTTL). 0 is no limit.
	RequestTTL machine.Time

	// NoEndpointTTL, if not nil, replaces RequestTTL while the pool has no endpoints (noEndpointRequestTTL of
	// llm-d.ai/v1). Each change between the two restarts a request's time. 0 is no limit.
	NoEndpointTTL *machine.Time

	// Bands are the declared priority bands, in any order.
	Bands []Band

	// DefaultBand is the template for undeclared priorities; DefaultNegativeBand, if not nil, for those below zero.
	// Their Priority is not used.
	DefaultBand         Band
	DefaultNegativeBand *Band

	// UsageLimit determines each band's ceiling, Detector the pool's saturation.
	UsageLimit UsageLimit
	Detector   Detector

	// Eviction enables in-flight eviction of requests with a priority below zero (enableEviction).
	Eviction bool
}

// dispatchInterval is the real picker's time between dispatches of waiting requests, one each.
const dispatchInterval = machine.Millisecond

// Band configures one priority band. Zero limits mean the defaults, as in the real picker, not "nothing may wait".
type Band struct {
	Priority              int
	MaxBytes, MaxRequests int64
	Fairness              Fairness
	Ordering              Ordering

	// RequestTTL, if not nil, replaces Config.RequestTTL in this band (defaultRequestTTL of llm-d.ai/v1's bands).
	RequestTTL *machine.Time
}

// DefaultConfig returns the defaults of the flowControl section.
func DefaultConfig() Config {
	return Config{
		RequestTTL: DefaultRequestTTL,
		UsageLimit: UsageLimit{Kind: StaticUsageLimit, Threshold: 1},
		Detector: Detector{Kind: UtilizationDetectorType, Utilization: DefaultUtilization(),
			Concurrency: DefaultConcurrency()},
	}
}

// withDefaults sets the defaults of zero values.
func (c Config) withDefaults() Config {
	c.UsageLimit = c.UsageLimit.withDefaults()
	c.DefaultBand = c.DefaultBand.withDefaults()
	if c.DefaultNegativeBand != nil {
		c.DefaultNegativeBand = new(c.DefaultNegativeBand.withDefaults())
	}
	bands := make([]Band, len(c.Bands))
	for i, b := range c.Bands {
		bands[i] = b.withDefaults()
	}
	c.Bands = bands
	return c
}

func (b Band) withDefaults() Band {
	b.MaxBytes = cmp.Or(b.MaxBytes, DefaultBandMaxBytes)
	b.MaxRequests = cmp.Or(b.MaxRequests, DefaultBandMaxRequests)
	b.Fairness = b.Fairness.withDefaults()
	b.Ordering = cmp.Or(b.Ordering, FCFS)
	return b
}

// Validate returns an error that lists every mistake in the configuration, in the real picker's words where it has any.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs problems
	errs.unless(c.MaxBytes >= 0, "maxBytes must be non-negative, got %d", c.MaxBytes)
	errs.unless(c.MaxRequests >= 0, "maxRequests must be non-negative, got %d", c.MaxRequests)
	errs.unless(c.RequestTTL >= 0, "defaultRequestTTL must be non-negative, got %v", c.RequestTTL)
	if ttl := c.NoEndpointTTL; ttl != nil {
		errs.unless(*ttl >= 0, "noEndpointRequestTTL must be non-negative, got %v", *ttl)
	}
	seen := map[int]bool{}
	for _, b := range c.Bands {
		errs.unless(!seen[b.Priority], "duplicate priority level %d", b.Priority)
		seen[b.Priority] = true
		errs = append(errs, b.validate(fmt.Sprintf("priority band %d", b.Priority)))
	}
	errs = append(errs, c.DefaultBand.validate("defaultPriorityBand"))
	if c.DefaultNegativeBand != nil {
		errs = append(errs, c.DefaultNegativeBand.validate("defaultNegativePriorityBand"))
	}
	errs = append(errs, c.UsageLimit.Validate(), c.Detector.Validate())
	return errors.Join(errs...)
}

func (b Band) validate(where string) error {
	var errs problems
	errs.unless(b.MaxBytes >= 0, "%s MaxBytes must be non-negative, got %d", where, b.MaxBytes)
	errs.unless(b.MaxRequests >= 0, "%s MaxRequests must be non-negative, got %d", where, b.MaxRequests)
	if ttl := b.RequestTTL; ttl != nil {
		errs.unless(*ttl >= 0, "%s defaultRequestTTL must be non-negative, got %v", where, *ttl)
	}
	for _, err := range []error{b.Ordering.validate(), b.Fairness.Validate()} {
		errs.unless(err == nil, "%s: %w", where, err)
	}
	return errors.Join(errs...)
}

// template returns the band for an undeclared priority.
func (c Config) template(priority int) Band {
	b := c.DefaultBand
	if priority < 0 && c.DefaultNegativeBand != nil {
		b = *c.DefaultNegativeBand
	}
	b.Priority = priority
	return b
}
