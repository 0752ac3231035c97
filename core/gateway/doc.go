// Package gateway is the meaning of a gateway's Kubernetes objects: what a
// request that comes to one of its listeners meets there.
//
// A Set is the objects of any number of files, read as an API server would take
// them: what the CRDs' schemas and rules refuse is refused, with file, line and
// field (Gateway API v1.6). Build makes a Program of it: which listeners there
// are and which routes are attached to each (allowedRoutes, sectionName, port,
// hostnames, ReferenceGrants), in the order in which they are tried, with the
// conditions that a controller would report of every object (Program.Status).
//
// A Program is data. live/envoy translates it for the real Envoy, and Table.Route
// says by itself what becomes of a request, which virtual time uses and tests
// hold the real Envoy against.
//
// Beside the Gateway API's own kinds a Set has what stands behind a route:
// InferencePools of all groups (core/epp/picker/objects), Services, and the
// workloads whose pods they select.
package gateway
