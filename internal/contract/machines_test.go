package contract

// Machines lists all machines of the core.
var Machines = []Machine{
	of("core/scaling/autoscaler.Machine", autoscalers),
	of("core/scaling/deployment.Deployment", deployments),
	of("core/sidecar/disagg.ClientRequest", sidecars),
	of("core/epp/dynamo.Router", dynamoRouters),
	of("core/modelserver/engine.Engine", engines),
	of("core/epp.Machine", pickers),
	of("core/epp.Service", pickerServices),
	of("core/epp.Stream", pickerStreams),
	of("core/gateway/upstream.Cluster", clusters),
	of("core/kv/kvfeed.Feed", feeds),
	of("core/kv/kvindex.Index", indexes),
	of("core/kv/link.Network", networks),
	of("core/modelserver.Response", responses),
	of("core/modelserver/enginecore.Core", engineCores),
	of("core/modelserver/enginecore.Network", enginecoreNetworks),
	of("core/epp/picker/flowcontrol.Controller", controllers),
	of("core/epp/predictor.Machine", predictors),
	of("core/epp/stream.Stream", streams),
}
