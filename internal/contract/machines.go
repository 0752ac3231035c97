package contract

// Machines are all machines of the core.
var Machines = []Machine{
	of("core/disagg.Exchange", sidecars),
	of("core/engine.Engine", engines),
	of("core/kv.Feed", feeds),
	of("core/kv.Index", indexes),
	of("core/link.Network", networks),
	of("core/picker/flowcontrol.Controller", controllers),
}
