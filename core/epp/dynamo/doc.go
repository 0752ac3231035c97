// Package dynamo is the KV router of NVIDIA Dynamo as it stands behind an inference
// gateway (document 001): it chooses a worker by what of a prompt the worker has in
// its cache and by what it still has to do.
//
// The cost, its parameters and their defaults are those of Dynamo's kv-router of
// mid 2026. Who keeps the router differs by arrangement: the endpoint picker itself
// (the plug-in dynamo-router), or a frontend that it asks (Router, a machine).
package dynamo
