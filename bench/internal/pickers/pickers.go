// Package pickers has the endpoint pickers that benchmarks of virtual time play: the
// plug-ins and profiles of a scenario's pool, indented as there.
package pickers

// RoundRobin takes the servers in turn.
const RoundRobin = `          - {type: round-robin-picker}
        schedulingProfiles:
          - name: default
            plugins: [{pluginRef: round-robin-picker}]`

// Scored goes by prefixes, queues and KV caches.
const Scored = `          - {type: prefix-cache-scorer}
          - {type: queue-scorer}
          - {type: kv-cache-utilization-scorer}
        schedulingProfiles:
          - name: default
            plugins:
              - {pluginRef: prefix-cache-scorer, weight: 2}
              - {pluginRef: queue-scorer, weight: 1}
              - {pluginRef: kv-cache-utilization-scorer, weight: 1}`
