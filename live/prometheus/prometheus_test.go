package prometheus

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func serverThat(t *testing.T, answers http.HandlerFunc) *Server {
	t.Helper()
	h := httptest.NewServer(answers)
	t.Cleanup(h.Close)
	s, err := New(h.URL + "/below/")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Instant and range queries reach Prometheus' API below the address, and return what it answers without values that
// are no numbers.
func TestQueries(t *testing.T) {
	s := serverThat(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch r.URL.Path {
		case "/below/api/v1/query":
			if q.Get("query") != `up{job="a b"}` || q.Get("time") != "1000000000.500" {
				t.Errorf("found %v", q)
			}
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[`+
				`{"metric":{"pod":"a"},"value":[1000000000.5,"1.5"]},{"metric":{"pod":"b"},"value":[1000000000.5,"NaN"]}]}}`)
		case "/below/api/v1/query_range":
			if q.Get("start") != "999999940.500" || q.Get("end") != "1000000000.500" || q.Get("step") != "0.5" {
				t.Errorf("found %v", q)
			}
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[`+
				`{"metric":{"pod":"a"},"values":[[1,"1"],[2,"NaN"],[3,"+Inf"]]}]}}`)
		default:
			http.NotFound(w, r)
		}
	})
	at := time.UnixMilli(1_000_000_000_500)
	list, err := s.Instant(t.Context(), `up{job="a b"}`, at)
	if err != nil || len(list) != 1 || list[0].Labels["pod"] != "a" || list[0].Values[0] != 1.5 {
		t.Errorf("found %v, %v", list, err)
	}
	list, err = s.Range(t.Context(), "up", at.Add(-time.Minute), at, 500*time.Millisecond)
	if err != nil || len(list) != 1 || len(list[0].Values) != 2 || list[0].Times[1] != 3 {
		t.Errorf("found %v, %v", list, err)
	}
}

// Whatever answers at the address, the error says what it found, and nothing is followed or read without end.
func TestHostileAnswers(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	defer other.Close()
	for expected, answers := range map[string]http.HandlerFunc{
		"redirects are not followed": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusFound)
		},
		"has not the form of Prometheus' HTTP API": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "<html>")
		},
		`status "", `: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") },
		"status 400: {\"status\":\"error\"": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"status":"error","errorType":"bad_data","error":"parse error"}`)
		},
		`found a result of type "scalar"`: func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"scalar","result":[]}}`)
		},
		"more than 16777216 bytes": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		},
		"found 10001 series": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[`+
				strings.Repeat(`{"metric":{},"value":[1,"1"]},`, 10_000)+`{"metric":{},"value":[1,"1"]}]}}`)
		},
	} {
		_, err := serverThat(t, answers).Instant(t.Context(), "up", time.Now())
		if err == nil || !strings.Contains(err.Error(), expected) {
			t.Errorf("found %v; expected %q", err, expected)
		}
	}
	gone := serverThat(t, nil)
	gone.base.Host = "127.0.0.1:1"
	if _, err := gone.Instant(t.Context(), "up", time.Now()); err == nil || strings.Contains(err.Error(), "query=") {
		t.Errorf("found %v; expected an error without the query", err)
	}
}

func TestAddresses(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:9091", "ftp://a", "http://", "http://a?b=c",
		"http://me:secret@a", "http://\x7f"} {
		if _, err := New(bad); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: found %v; expected an error without the password", bad, err)
		}
	}
	if _, err := New("https://a/b"); err != nil {
		t.Error(err)
	}
}
