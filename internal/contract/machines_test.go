package contract

// Machines are all machines of the core.
var Machines = []Machine{
	of("core/autoscaler.Machine", autoscalers),
	of("core/deployment.Deployment", deployments),
	of("core/disagg.ClientRequest", sidecars),
	of("core/dynamo.Router", dynamoRouters),
	of("core/engine.Engine", engines),
	of("core/epp.Machine", pickers),
	of("core/epp.Service", pickerServices),
	of("core/epp.Stream", pickerStreams),
	of("core/gateway/upstream.Cluster", clusters),
	of("core/kv/kvfeed.Feed", feeds),
	of("core/kv/kvindex.Index", indexes),
	of("core/link.Network", networks),
	of("core/modelserver.Response", responses),
	of("core/modelserver/enginecore.Core", engineCores),
	of("core/modelserver/enginecore.Network", enginecoreNetworks),
	of("core/picker/flowcontrol.Controller", controllers),
	of("core/predictor.Machine", predictors),
	of("core/stream.Stream", streams),
}
