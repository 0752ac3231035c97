package scenario

// Picked says whether the pool has endpoint pickers. One without is a plain Service, among
// whose servers Envoy chooses.
func (p *Pool) Picked() bool { return p.EPP.Replicas > 0 }

// checkService tells what a pool without a picker cannot have: what the picker does.
func (s *Scenario) checkService(p *Pool, path string) (out Problems) {
	add := func(field, found, expected string) {
		out = append(out, s.problem(path+"."+field, found+" with epp.replicas 0", expected))
	}
	if s.gateway != nil {
		add("epp.replicas", "manifests", "1 or more: an InferencePool has a picker")
	}
	if p.Flow == Held {
		add("flow", "held", "flow: plain: it is the picker that holds requests")
	}
	if p.Disaggregation.PrefillReplicas > 0 && p.Dynamo.Frontend != GraphFrontend {
		add("disaggregation.prefillReplicas", "given",
			"dynamo.frontend: graph, whose router chooses prefill workers, or a picker that does")
	}
	if p.Predictor.Given() {
		add("predictor", "given", "nothing: only a picker asks it")
	}
	for _, field := range []string{"failureMode", "epp.serviceTime", "epp.workers", "epp.deadline", "epp.holdLimit",
		"epp.metadataBytes", "epp.errors", "epp.bodyMode", "epp.responseBodyMode",
		"epp.processingTimeout", "epp.objectives", "epp.config"} {
		if s.written(path + "." + field) {
			add(field, "given", "nothing: there is no picker that it could mean")
		}
	}
	return out
}
