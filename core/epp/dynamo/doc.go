// Package dynamo is the KV router of NVIDIA Dynamo behind an inference gateway (document 001). It chooses a worker by
// how much of a prompt the worker has cached and by its pending work.
//
// The cost, its parameters and their defaults are those of Dynamo's kv-router of mid 2026. The router runs in the
// endpoint picker itself (the plug-in dynamo-router, with Load), or in a frontend that the picker calls (Router, a
// machine).
package dynamo
