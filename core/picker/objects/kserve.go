package objects

import "github.com/windtunnel/windtunnel/core/picker"

// KServe is what document 003's pool says beyond the others.
type KServe struct {
	ModelName        string
	RoutingType      string             // routingPolicy.type
	SchedulerProfile string             // routingPolicy.schedulerProfile
	Algorithm        string             // routingPolicy.loadBalancing.algorithm
	Weights          map[string]float64 // cache_hit, load, latency

	Disaggregation Disaggregation
	Health         Health
	MinReplicas    int64
	MaxReplicas    int64
	ScaleTargets   map[string]float64 // autoscaling.targetMetrics by type
}

// Disaggregation tells prefill pods from decode pods.
type Disaggregation struct {
	Enabled         bool
	Prefill, Decode picker.Selector
	Connector       string            // "nixlv2"
	ConnectorConfig map[string]string // as written
}

// Health is how the pool's pods are probed.
type Health struct {
	Enabled                              bool
	Endpoint, Interval, Timeout          string
	UnhealthyThreshold, HealthyThreshold int64
}

// known adds the fields to those of every pool.
func (k *KServe) known(spec map[string]func(value)) {
	spec["modelName"] = func(v value) { k.ModelName = v.text() }
	spec["routingPolicy"] = func(v value) {
		v.fields(map[string]func(value){
			"type":             func(v value) { k.RoutingType = v.text() },
			"schedulerProfile": func(v value) { k.SchedulerProfile = v.text() },
			"loadBalancing": func(v value) {
				v.fields(map[string]func(value){
					"algorithm": func(v value) { k.Algorithm = v.text() },
					"weights": func(v value) {
						k.Weights = map[string]float64{}
						for _, p := range v.pairs() {
							k.Weights[p.key] = p.float()
						}
					},
				})
			},
		})
	}
	spec["disaggregation"] = func(v value) {
		d := &k.Disaggregation
		v.fields(map[string]func(value){
			"enabled":         func(v value) { d.Enabled = v.flag() },
			"prefillSelector": func(v value) { d.Prefill = readSelector(v, false) },
			"decodeSelector":  func(v value) { d.Decode = readSelector(v, false) },
			"connector": func(v value) {
				v.fields(map[string]func(value){
					"type": func(v value) { d.Connector = v.text() },
					"config": func(v value) {
						d.ConnectorConfig = map[string]string{}
						for _, p := range v.pairs() {
							if p.given() {
								d.ConnectorConfig[p.key] = p.n.Value
							}
						}
					},
				})
			},
		})
	}
	spec["healthCheck"] = func(v value) {
		h := &k.Health
		v.fields(map[string]func(value){
			"enabled":            func(v value) { h.Enabled = v.flag() },
			"endpoint":           func(v value) { h.Endpoint = v.text() },
			"interval":           func(v value) { h.Interval = v.text() },
			"timeout":            func(v value) { h.Timeout = v.text() },
			"unhealthyThreshold": func(v value) { h.UnhealthyThreshold = v.number(1, 1000, 0) },
			"healthyThreshold":   func(v value) { h.HealthyThreshold = v.number(1, 1000, 0) },
		})
	}
	spec["autoscaling"] = func(v value) {
		v.fields(map[string]func(value){
			"minReplicas": func(v value) { k.MinReplicas = v.number(0, 1e6, 0) },
			"maxReplicas": func(v value) { k.MaxReplicas = v.number(0, 1e6, 0) },
			"targetMetrics": func(v value) {
				k.ScaleTargets = map[string]float64{}
				for _, e := range v.list() {
					k.ScaleTargets[e.get("type").text()] = e.get("target").float()
				}
			},
		})
	}
}
