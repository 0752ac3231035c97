package scenario

// Picked reports whether the pool has endpoint pickers. A pool without is a plain Service, whose servers Envoy chooses.
func (p *Pool) Picked() bool { return p.EPP.Replicas > 0 }

// checkService reports the fields that need a picker, in a pool without one.
func (s *checker) checkService(p *Pool, path string) {
	add := func(field, found, expected string) {
		s.bad(path+"."+field, found+" with epp.replicas 0", expected)
	}
	if s.gateway != nil {
		add("epp.replicas", "manifests", "1 or more: an InferencePool has a picker")
	}
	if p.Flow == Held {
		add("flow", "held", "flow: plain: only a picker holds requests")
	}
	if p.Disaggregation.PrefillReplicas > 0 && p.Dynamo.Frontend != GraphFrontend {
		add("disaggregation.prefillReplicas", "given",
			"dynamo.frontend: graph, whose router chooses prefill workers, or a picker that does")
	}
	if p.Predictor.Given() {
		add("predictor", "given", "nothing: only a picker calls it")
	}
	s.refuse(path, []string{"failureMode", "epp.serviceTime", "epp.workers", "epp.deadline", "epp.holdLimit",
		"epp.metadataBytes", "epp.errors", "epp.bodyMode", "epp.responseBodyMode", "epp.processingTimeout",
		"epp.objectives", "epp.config"}, "given with epp.replicas 0", "nothing: there is no picker")
}
