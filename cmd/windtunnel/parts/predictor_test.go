package parts

import (
	"fmt"
	"strings"
	"testing"
)

// The real picker's environment variables give the predictor's addresses and intervals.
func TestPredictorOfTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env  map[string]string
		want string // as %+v; "" for nobody, or what the error says
	}{
		{nil, "<nil>"},
		{map[string]string{"PREDICTION_SERVER_URL": "http://a:1/, http://b:2", "TRAINING_SERVER_URL": "http://c:3"},
			"&{Prediction:[http://a:1 http://b:2] Training:http://c:3 Together:0.001s Poll:60s Timeout:0s}"},
		{map[string]string{"PREDICTION_SERVER_URL": "http://a:1", "LATENCY_COALESCE_WINDOW_MS": "0",
			"LATENCY_METRICS_INTERVAL_SEC": "5"},
			"&{Prediction:[http://a:1] Training: Together:0s Poll:5s Timeout:0s}"},
		{map[string]string{"PREDICTION_SERVER_URL": "http://a:1", "LATENCY_COALESCE_WINDOW_MS": "-1"},
			"expected a whole number from 0"},
		{map[string]string{"PREDICTION_SERVER_URL": "http://a:1", "LATENCY_METRICS_INTERVAL_SEC": "0"},
			"expected a whole number from 1"},
		{map[string]string{"PREDICTION_SERVER_URL": "a:1"}, "expected a URL"},
		{map[string]string{"TRAINING_SERVER_URL": "http://c:3"}, "expected both"},
		{map[string]string{"PREDICTION_SERVER_URL": "http://a:1", "TRAINING_SERVER_URL": "http://c:3,http://d:4"},
			"expected one"},
	} {
		got, err := predictorService(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
		if text := fmt.Sprintf("%+v", got); err == nil && text != c.want || err != nil &&
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %s %v; expected %s", c.env, text, err, c.want)
		}
	}
}
