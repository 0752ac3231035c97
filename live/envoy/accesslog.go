package envoy

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filelogv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// accessLogFormat maps the JSON keys of AccessRecord to Envoy's operators. A value that Envoy does not have is null.
var accessLogFormat = map[string]string{
	"start":            "%START_TIME(%s.%9f)%",
	"request_id":       "%REQ(X-REQUEST-ID)%",
	"method":           "%REQ(:METHOD)%",
	"path":             "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%",
	"protocol":         "%PROTOCOL%",
	"status":           "%RESPONSE_CODE%",
	"details":          "%RESPONSE_CODE_DETAILS%",
	"flags":            "%RESPONSE_FLAGS%",
	"termination":      "%CONNECTION_TERMINATION_DETAILS%",
	"route":            "%ROUTE_NAME%",
	"cluster":          "%UPSTREAM_CLUSTER%",
	"upstream":         "%UPSTREAM_HOST%",
	"upstream_failure": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
	"attempts":         "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
	"bytes_in":         "%BYTES_RECEIVED%",
	"bytes_out":        "%BYTES_SENT%",
	"duration_ms":      "%DURATION%",
	// Microseconds from the request's first byte to each point.
	"request_read_us":       "%COMMON_DURATION(DS_RX_BEG:DS_RX_END:us)%",
	"upstream_connected_us": "%COMMON_DURATION(DS_RX_BEG:US_CX_END:us)%",
	"upstream_begun_us":     "%COMMON_DURATION(DS_RX_BEG:US_TX_BEG:us)%",
	"upstream_sent_us":      "%COMMON_DURATION(DS_RX_BEG:US_TX_END:us)%",
	"upstream_first_us":     "%COMMON_DURATION(DS_RX_BEG:US_RX_BEG:us)%",
	"upstream_last_us":      "%COMMON_DURATION(DS_RX_BEG:US_RX_END:us)%",
	"response_first_us":     "%COMMON_DURATION(DS_RX_BEG:DS_TX_BEG:us)%",
	"response_last_us":      "%COMMON_DURATION(DS_RX_BEG:DS_TX_END:us)%",
	// How long Envoy waited for the picker's answer to the two sets of headers.
	"ext_proc_request_us":  "%FILTER_STATE(" + pickerFilter + ":FIELD:request_header_latency_us)%",
	"ext_proc_response_us": "%FILTER_STATE(" + pickerFilter + ":FIELD:response_header_latency_us)%",
	// And for the body-based router's answer to the request's headers, if there is a router.
	"router_request_us": "%FILTER_STATE(" + bodyRouterFilter + ":FIELD:request_header_latency_us)%",
}

// accessLogs writes one JSON line per finished request.
func (w *writer) accessLogs() []*accesslogv3.AccessLog {
	if w.accessLog == "" {
		return nil
	}
	fields := map[string]*structpb.Value{}
	for key, operator := range accessLogFormat {
		fields[key] = structpb.NewStringValue(operator)
	}
	file := w.pack(&filelogv3.FileAccessLog{
		Path: w.accessLog,
		AccessLogFormat: &filelogv3.FileAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: &structpb.Struct{Fields: fields}},
		}},
	})
	return []*accesslogv3.AccessLog{{
		Name:       "envoy.access_loggers.file",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: file},
	}}
}
