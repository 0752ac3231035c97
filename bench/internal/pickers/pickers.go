// Package pickers has the endpoint picker configurations of the benchmarks of virtual time: the plug-ins and profiles
// of a scenario's pool, with the indentation that they have there.
package pickers

// RoundRobin chooses the servers in turn.
const RoundRobin = `          - {type: round-robin-picker}
        schedulingProfiles:
          - name: default
            plugins: [{pluginRef: round-robin-picker}]`

// Scored uses prefixes, queues and KV caches.
const Scored = `          - {type: prefix-cache-scorer}
          - {type: queue-scorer}
          - {type: kv-cache-utilization-scorer}
        schedulingProfiles:
          - name: default
            plugins:
              - {pluginRef: prefix-cache-scorer, weight: 2}
              - {pluginRef: queue-scorer, weight: 1}
              - {pluginRef: kv-cache-utilization-scorer, weight: 1}`
