package conformance

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/go-logr/logr"
	suitefs "sigs.k8s.io/gateway-api/conformance"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/config"
	"sigs.k8s.io/gateway-api/conformance/utils/roundtripper"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// claimed are the features that windtunnel claims, in addition to the profile's core.
var claimed = []features.FeatureName{
	features.SupportGateway,
	features.SupportReferenceGrant,
	features.SupportHTTPRoute,

	features.SupportGatewayPort8080,
	features.SupportGatewayHTTPListenerIsolation,
	features.SupportHTTPRouteQueryParamMatching,
	features.SupportHTTPRouteMethodMatching,
	features.SupportHTTPRouteResponseHeaderModification,
	features.SupportHTTPRouteBackendRequestHeaderModification,
	features.SupportHTTPRoutePortRedirect,
	features.SupportHTTPRouteSchemeRedirect,
	features.SupportHTTPRoutePathRedirect,
	features.SupportHTTPRoute303RedirectStatusCode,
	features.SupportHTTPRoute307RedirectStatusCode,
	features.SupportHTTPRoute308RedirectStatusCode,
	features.SupportHTTPRouteHostRewrite,
	features.SupportHTTPRoutePathRewrite,
	features.SupportHTTPRouteRequestMirror,
	features.SupportHTTPRouteRequestMultipleMirrors,
	features.SupportHTTPRouteRequestPercentageMirror,
	features.SupportHTTPRouteRequestTimeout,
	features.SupportHTTPRouteBackendTimeout,
	features.SupportHTTPRouteParentRefPort,
	features.SupportHTTPRouteBackendProtocolH2C,
	features.SupportHTTPRouteNamedRouteRule,
	features.SupportHTTPRouteRetry,
}

// patience is how long the suite waits for an expected state.
const patience = 20 * time.Second

// trip sends the suite's requests. The suite derives the name of a pod's Service from the pod's name, which has two
// hashes as in a Deployment.
type trip struct{ roundtripper.RoundTripper }

func (t trip) CaptureRoundTrip(r roundtripper.Request) (*roundtripper.CapturedRequest, *roundtripper.CapturedResponse,
	error) {
	asked, answered, err := t.RoundTripper.CaptureRoundTrip(r)
	if asked != nil {
		if i := strings.LastIndex(asked.Pod, "-"); i > 0 {
			asked.Pod = asked.Pod[:i] + "-0" + asked.Pod[i:]
		}
	}
	return asked, answered, err
}

// TestConformance runs the suite, and prints which tests passed and failed and which features are not claimed. -run
// TestConformance/NAME runs one test.
func TestConformance(t *testing.T) {
	ctrllog.SetLogger(logr.Discard())
	c := &controller{cluster: newCluster(t), t: t, logs: &logs{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })

	timeouts := config.DefaultTimeoutConfig()
	// Without a real cluster, longer waits do not help.
	for _, d := range []*time.Duration{&timeouts.GatewayMustHaveAddress, &timeouts.GatewayMustHaveCondition,
		&timeouts.GatewayStatusMustHaveListeners, &timeouts.GatewayListenersMustHaveConditions,
		&timeouts.HTTPRouteMustNotHaveParents, &timeouts.HTTPRouteMustHaveCondition, &timeouts.RouteMustHaveParents,
		&timeouts.LatestObservedGenerationSet, &timeouts.MaxTimeToConsistency} {
		*d = patience
	}
	s, err := suite.NewConformanceTestSuite(suite.ConformanceOptions{
		ConfigurableOptions: suite.ConfigurableOptions{
			GatewayClassName:     className,
			CleanupTestResources: true,
			SupportedFeatures:    claimed,
			TimeoutConfig:        timeouts,
			ConformanceProfiles:  []suite.ConformanceProfileName{suite.GatewayHTTPConformanceProfileName},
		},
		Client:       c.Client,
		Clientset:    c.logs.clientset(t),
		RoundTripper: trip{&roundtripper.DefaultRoundTripper{TimeoutConfig: timeouts, CustomDialContext: c.dial}},
		ManifestFS:   []fs.FS{&suitefs.Manifests},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Setup(t, tests.ConformanceTests)

	var passed, failed, not []string
	for _, test := range tests.ConformanceTests {
		if !s.SupportedFeatures.HasAll(test.Features...) {
			missing := slices.DeleteFunc(slices.Clone(test.Features), s.SupportedFeatures.Has)
			not = append(not, fmt.Sprintf("%s %v", test.ShortName, missing))
			continue
		}
		ran := false
		test.Parallel = false // the tests share Gateways and a machine
		good := t.Run(test.ShortName, func(t *testing.T) {
			ran = true
			test.Run(t, s)
		})
		switch {
		case !ran:
		case good:
			passed = append(passed, test.ShortName)
		default:
			failed = append(failed, test.ShortName)
		}
	}
	slices.Sort(not)
	fmt.Printf("not claimed:\n  %s\nfailed:\n  %s\n%d passed, %d failed, %d not claimed\n", strings.Join(not, "\n  "),
		strings.Join(failed, "\n  "), len(passed), len(failed), len(not))
}
