// Package gateway interprets a gateway's Kubernetes objects: it determines what happens to a request at one of its
// listeners.
//
// A Set holds the objects of any number of files, validated as an API server would: an object that the CRDs' schemas
// and rules refuse is an error, with file, line and field (Gateway API v1.6). Build makes a Program of it. The Program
// has the listeners, and the routes attached to each (allowedRoutes, sectionName, port, hostnames, ReferenceGrants) in
// the order of matching. It also has the conditions that a controller would report for every object (Program.Status).
//
// A Program is data. live/envoy translates it for the real Envoy. Table.Decide decides about a request by itself:
// virtual time uses it, and tests compare the real Envoy with it.
//
// Beside the Gateway API's own kinds, a Set has the objects behind a route: InferencePools of all groups
// (core/epp/picker/objects), Services, and the workloads whose pods they select.
package gateway
