package jobs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/search"
	"github.com/windtunnel/windtunnel/internal/version"
)

// Flags are those of a cluster, beside those of sweep and capacity.
type Flags struct {
	Kubeconfig string `group:"cluster" placeholder:"FILE" fromenv:"KUBECONFIG" help:"How to reach the API server; without it, as a pod does."`
	Namespace  string `group:"cluster" default:"default" placeholder:"NAME" help:"The namespace of everything that is created."`
	Name       string `group:"cluster" placeholder:"NAME" help:"The Job's name. Left out: one of the command, its flags and its files."`
	Image      string `group:"cluster" placeholder:"IMAGE" help:"The image of windtunnel, of this version. Left out: the release's."`
	Indexes    int    `group:"cluster" placeholder:"N" help:"The Job's completions; each plays a share. Left out: as many as have runs to play, at most 16."`
	Parallel   int    `group:"cluster" placeholder:"N" help:"How many pods run at once. Left out: all indexes."`
	Retries    int    `group:"cluster" default:"3" placeholder:"N" help:"How often Kubernetes retries an index."`
	CPU        string `group:"cluster" default:"1" placeholder:"QUANTITY" help:"CPUs of each pod; runs use all of them."`
	Memory     string `group:"cluster" default:"1Gi" placeholder:"QUANTITY" help:"Memory of each pod."`
	Claim      string `group:"cluster" placeholder:"NAME" help:"An existing PersistentVolumeClaim for the results. Left out: one is created, and deleted after success."`
	Size       string `group:"cluster" default:"1Gi" placeholder:"QUANTITY" help:"Size of the created claim."`
	Class      string `group:"cluster" name:"storage-class" placeholder:"NAME" help:"Storage class of the created claim. Left out: the cluster's default."`
	AccessMode string `group:"cluster" name:"access-mode" enum:"ReadWriteOnce,ReadWriteMany" default:"ReadWriteOnce" help:"Access mode of the created claim. With ReadWriteOnce, all pods run on one node."`
	Keep       bool   `group:"cluster" name:"keep-job" help:"Keep the Job, and the claim with the results, after success."`
	DryRun     bool   `group:"cluster" name:"dry-run" help:"Print the objects as YAML, and create nothing."`

	together bool // all indexes run at once, and none again; what the collecting pod prints is the result
}

// owned are the flags of Flags and source, which a pod does not get; those that are true take no value.
var owned = map[string]bool{"kubeconfig": false, "namespace": false, "name": false, "image": false, "indexes": false,
	"parallel": false, "retries": false, "cpu": false, "memory": false, "claim": false, "size": false,
	"storage-class": false, "access-mode": false, "keep-job": true, "dry-run": true, "prometheus": false, "for": false,
	"step": false, "save": false}

// most is the default of --indexes at most.
const most = 16

// maxRetries bounds --retries, maxQuantity quantities of CPUs, of bytes and of a claim's size.
const maxRetries = 1000

// check returns an error for a wrong value, and sets what was left out. Shares is how many have runs to play.
func (f *Flags) check(shares int) error {
	if f.Image == "" && !strings.HasPrefix(version.Text(), "v") {
		return exit.Errorf(exit.Usage, "--image: this build (%s) is no release, so no image has its version; expected "+
			"the image of the same build", version.Text())
	}
	f.Image = cmp.Or(f.Image, "ghcr.io/windtunnel/windtunnel:"+version.Text())
	f.Indexes = cmp.Or(f.Indexes, min(shares, most))
	f.Parallel = cmp.Or(f.Parallel, f.Indexes)
	for flag, name := range map[string]string{"--namespace": f.Namespace, "--name": f.Name, "--claim": f.Claim} {
		if bad := validation.IsDNS1123Label(name); name != "" && (len(bad) > 0 || len(name) > maxName) {
			return exit.Errorf(exit.Usage, "%s: found %q; expected lower-case letters, digits and -, at most %d, with "+
				"a letter or a digit at the ends", flag, name, maxName)
		}
	}
	if bad := validation.IsDNS1123Subdomain(f.Class); f.Class != "" && len(bad) > 0 {
		return exit.Errorf(
			exit.Usage,
			"--storage-class: found %q; expected the name of a StorageClass, as kubectl get "+
				"storageclass lists it",
			f.Class,
		)
	}
	for flag, text := range map[string]string{"--cpu": f.CPU, "--memory": f.Memory, "--size": f.Size} {
		if q, err := resource.ParseQuantity(text); err != nil || q.Sign() <= 0 {
			return exit.Errorf(exit.Usage, "%s: found %q; expected a quantity such as %s", flag, text,
				map[string]string{"--cpu": "2 or 500m", "--memory": "1Gi", "--size": "10Gi"}[flag])
		}
	}
	for _, x := range []struct {
		flag          string
		n, least, top int
	}{{"--indexes", f.Indexes, 1, search.MaxShares}, {"--parallel", f.Parallel, 1, f.Indexes},
		{"--retries", f.Retries, 0, maxRetries}} {
		if x.n < x.least || x.n > x.top {
			return exit.Errorf(exit.Usage, "%s: found %d; expected from %d to %d", x.flag, x.n, x.least, x.top)
		}
	}
	if f.together && f.Parallel < f.Indexes {
		return exit.Errorf(exit.Usage, "--parallel: found %d of %d indexes; expected all, since the clients send "+
			"together", f.Parallel, f.Indexes)
	}
	if f.together {
		f.Retries = 0
	}
	return nil
}

// maxName bounds a name. The names of the collecting Job and of pods are longer.
const maxName = 50

// own returns arguments without those of Flags.
func own(args []string) (out []string) {
	for i := 0; i < len(args); i++ {
		name, _, hasValue := strings.Cut(args[i], "=")
		flag, long := strings.CutPrefix(name, "--")
		switch alone, is := owned[flag]; {
		case !long || !is:
			out = append(out, args[i])
		case !alone && !hasValue:
			i++
		}
	}
	return out
}

// objects are created by a command.
type objects struct {
	Claim *corev1.PersistentVolumeClaim // nil for one that exists
	Files *corev1.ConfigMap
	Job   *batchv1.Job
	// Verbatim says that the result is what the collecting pod prints. Otherwise it is the JSON among that.
	Verbatim bool
}

// command is the annotation with a hash of what the pods do.
const command = "windtunnel/command"

// began is the variable of the pods with the time of a load.
const began = "WINDTUNNEL_BEGAN"

// resultsAt is where pods see the volume.
const resultsAt = "/windtunnel/results"

// finalCodes are exit codes that a retry does not change: usage and input.
var finalCodes = []int32{int32(exit.Usage), int32(exit.Input)}

// digest is a hash of what the pods do.
func (t *tree) digest() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q", version.Text(), t.Args)
	for _, name := range slices.Sorted(maps.Keys(t.Files)) {
		fmt.Fprintf(h, "%q %q", name, t.Files[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// objects returns the objects for a command: t.Args begin with its name.
func (f *Flags) objects(t *tree) *objects {
	name := f.Name
	if name == "" {
		name = "windtunnel-" + t.Args[0] + "-" + t.digest()
	}
	meta := metav1.ObjectMeta{Name: name, Namespace: f.Namespace, Labels: map[string]string{
		"app.kubernetes.io/name": "windtunnel", "app.kubernetes.io/component": t.Args[0],
		"app.kubernetes.io/managed-by": "windtunnel-k8s"},
		Annotations: map[string]string{command: t.digest()}}
	out := &objects{Verbatim: f.together, Files: &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: meta, Data: map[string]string{}}}
	items := []corev1.KeyToPath{}
	for i, path := range slices.Sorted(maps.Keys(t.Files)) {
		key := "file-" + strconv.Itoa(i)
		items = append(items, corev1.KeyToPath{Key: key, Path: path})
		if text := t.Files[path]; utf8.Valid(text) {
			out.Files.Data[key] = string(text)
		} else {
			if out.Files.BinaryData == nil {
				out.Files.BinaryData = map[string][]byte{}
			}
			out.Files.BinaryData[key] = text
		}
	}
	claim := f.Claim
	if claim == "" {
		claim = name
		out.Claim = &corev1.PersistentVolumeClaim{ObjectMeta: meta,
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(f.AccessMode)},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceStorage: resource.MustParse(f.Size)}}}}
		if f.Class != "" {
			out.Claim.Spec.StorageClassName = &f.Class
		}
	}
	indexed := batchv1.IndexedCompletion
	onExit := batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionFailJob,
		OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn,
			Values: finalCodes}}
	out.Job = &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: meta,
		Spec: batchv1.JobSpec{CompletionMode: &indexed, Completions: new(int32(f.Indexes)),
			Parallelism:          new(int32(f.Parallel)),
			BackoffLimitPerIndex: new(int32(f.Retries)),
			PodFailurePolicy:     &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{onExit}},
			// The Job controller expands JOB_COMPLETION_INDEX in the arguments.
			Template: f.template(t, meta, claim, items, "--results", resultsAt, "--share",
				"$(JOB_COMPLETION_INDEX)/"+strconv.Itoa(f.Indexes))}}
	if f.together { // clients begin in an empty directory
		c := &out.Job.Spec.Template.Spec.Containers[0]
		c.Env = []corev1.EnvVar{{Name: began, Value: time.Now().UTC().Format("20060102T150405.000")}}
		c.Args[len(c.Args)-3] += "/$(" + began + ")"
	}
	return out
}

// template returns the pods of a Job, which run the command with further arguments.
func (f *Flags) template(t *tree, meta metav1.ObjectMeta, claim string, items []corev1.KeyToPath,
	more ...string) corev1.PodTemplateSpec {
	yes, no, user := true, false, int64(65532) // of distroless' nonroot
	need := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(f.CPU),
		corev1.ResourceMemory: resource.MustParse(f.Memory)}
	files := corev1.ConfigMapVolumeSource{Items: items}
	files.Name = meta.Name
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user,
			FSGroup: &user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Volumes: []corev1.Volume{
			{Name: "files", VolumeSource: corev1.VolumeSource{ConfigMap: &files}},
			{Name: "results", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
			{Name: "temporary", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		Containers: []corev1.Container{{Name: "windtunnel", Image: f.Image, WorkingDir: t.Dir,
			Args: slices.Concat(t.Args, more), Resources: corev1.ResourceRequirements{Requests: need, Limits: need},
			VolumeMounts: []corev1.VolumeMount{{Name: "files", MountPath: filesAt, ReadOnly: true},
				{Name: "results", MountPath: resultsAt}, {Name: "temporary", MountPath: "/tmp"}},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}}}}}
}

// collector returns the Job that prints the result of a finished one.
func (o *objects) collector() *batchv1.Job {
	j := o.Job.DeepCopy()
	j.Name, j.ResourceVersion, j.UID = o.Job.Name+"-collect", "", ""
	j.Spec = batchv1.JobSpec{BackoffLimit: new(int32(0)), Template: j.Spec.Template}
	c := &j.Spec.Template.Spec.Containers[0]
	c.Args = append(c.Args[:len(c.Args)-2:len(c.Args)-2], "--collect") // instead of --share
	if !o.Verbatim {
		c.Args = append(c.Args, "--output", "json")
	}
	return j
}
