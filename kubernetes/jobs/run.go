package jobs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windtunnel/windtunnel/cmd/windtunnel/console"
	"github.com/windtunnel/windtunnel/internal/exit"
	"github.com/windtunnel/windtunnel/internal/pause"
	"github.com/windtunnel/windtunnel/kubernetes/apiclient"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// run is a command that is played on a cluster.
type run struct {
	api  *apiclient.Client
	out  *console.Console
	made *objects
	keep bool

	shown string          // the last line about progress
	seen  map[string]bool // failed pods that were reported
	// verdict is an error if the result, which is there, says that expectations are missed.
	verdict error
}

// look is how long the command waits before it asks for the Job's state again.
const look = 500 * time.Millisecond

// play returns the file with the collected result, which the caller removes. After a failure of some indexes, the
// file has the results of the others, and the error says which failed.
func (r *run) play(ctx context.Context) (file string, err error) {
	j := r.made.Job
	if err = r.create(ctx); err == nil {
		err = r.follow(ctx)
	}
	if ctx.Err() != nil {
		r.note("Job %s/%s continues: the same command follows it again, and kubectl delete job -n %s %s ends it",
			j.Namespace, j.Name, j.Namespace, j.Name)
		return "", exit.Reported(exit.Interrupted, ctx.Err())
	}
	var failed *failedError
	if err != nil && !errors.As(err, &failed) {
		return "", r.place(err)
	}
	file, collected := r.collect(ctx)
	if err = errors.Join(err, collected); err != nil {
		return file, exit.With(exit.Broken, err)
	}
	if !r.keep {
		err = r.clean(ctx)
	}
	return file, errors.Join(err, r.verdict)
}

// place adds an exit code and the API server's address to an error.
func (r *run) place(err error) error {
	var status apierrors.APIStatus
	if exit.Of(err) != exit.Broken { // it has a code of its own
		return err
	}
	if errors.As(err, &status) {
		return exit.With(exit.Broken, err)
	}
	return unreached(r.api, err)
}

// unreached returns the error of an API server that does not answer.
func unreached(a *apiclient.Client, err error) error {
	return exit.Hint(exit.Environment, fmt.Errorf("API server %s: %w", a.URL, err),
		"kubectl cluster-info shows whether it answers")
}

// note prints a note above the line about progress.
func (r *run) note(format string, args ...any) {
	r.clear()
	fmt.Fprintf(r.out.Stderr, "windtunnel: "+format+"\n", args...)
}

// progress shows a line: on a terminal, in place of the last one.
func (r *run) progress(line string) {
	if line == r.shown {
		return
	}
	r.clear()
	if r.shown = line; !r.out.Color() {
		r.note("%s", line)
		return
	}
	_, _ = io.WriteString(r.out.Out(), terminal.Printable(line)) // an error comes back where the result is printed
}

func (r *run) clear() {
	if r.shown != "" && r.out.Color() {
		_, _ = io.WriteString(r.out.Out(), "\r\x1b[K")
	}
}

// create creates what does not exist. A Job of the same command that has failed gives way to a new one.
func (r *run) create(ctx context.Context) error {
	j := r.made.Job
	old, err := r.job(ctx, j.Namespace, j.Name)
	if err == nil && old.Annotations[command] != j.Annotations[command] {
		return exit.Hint(
			exit.Usage,
			fmt.Errorf(
				"--name: Job %s/%s exists, and plays another command",
				j.Namespace,
				j.Name,
			),
			fmt.Sprintf("choose another name, or: kubectl delete job -n %s %s", j.Namespace, j.Name),
		)
	}
	switch {
	case err == nil && ended(old) == batchv1.JobFailed:
		r.note("Job %s/%s has failed before; its results are kept, and the rest is played again", j.Namespace, j.Name)
		if err := r.again(ctx, j.Name); err != nil {
			return err
		}
	case err == nil:
		j.Spec.Template.Spec.Containers[0].Env = old.Spec.Template.Spec.Containers[0].Env
		r.note("following Job %s/%s, which exists", j.Namespace, j.Name)
		return nil
	case !apierrors.IsNotFound(err):
		return err
	}
	if c := r.made.Claim; c != nil {
		err := r.api.Do(ctx, http.MethodPost, apiclient.At("persistentvolumeclaims", c.Namespace), c, nil)
		if err != nil && !apierrors.IsAlreadyExists(err) { // after a failure, with the results
			return err
		}
	}
	if err := r.remove(ctx, "configmaps", j.Namespace, r.made.Files.Name); err != nil {
		return err
	}
	if err := r.api.Do(ctx, http.MethodPost, apiclient.At("configmaps", j.Namespace), r.made.Files, nil); err != nil {
		return err
	}
	if err := r.api.Do(ctx, http.MethodPost, apiclient.At("jobs", j.Namespace), j, nil); err != nil {
		return err
	}
	r.note("created Job %s/%s: %d indexes, %d at once", j.Namespace, j.Name, *j.Spec.Completions, *j.Spec.Parallelism)
	return nil
}

// again deletes a Job, and waits until it is gone.
func (r *run) again(ctx context.Context, name string) error {
	j := r.made.Job
	if err := r.remove(ctx, "jobs", j.Namespace, name); err != nil {
		return err
	}
	for {
		_, err := r.job(ctx, j.Namespace, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if !pause.For(ctx, look) {
			return ctx.Err()
		}
	}
}

// ended returns the condition with which a Job ended, "" while it runs.
func ended(j *batchv1.Job) batchv1.JobConditionType {
	for _, c := range j.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c.Type
		}
	}
	return ""
}

// failedError is a Job that came to its end with failed indexes.
type failedError struct{ text string }

func (e *failedError) Error() string { return e.text }

// mostLost is how many requests about a Job may fail in a row before the command ends.
const mostLost = 60

// follow returns when the Job has ended. It reports each pod that failed, with the end of its log.
func (r *run) follow(ctx context.Context) error {
	j := r.made.Job
	for lost := 0; ; {
		now, err := r.job(ctx, j.Namespace, j.Name)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsNotFound(err):
			return fmt.Errorf("Job %s/%s was deleted while it ran; expected it to come to its end", j.Namespace, j.Name)
		case err != nil:
			if lost++; lost == mostLost {
				return err
			}
			r.progress(fmt.Sprintf("the API server does not answer: %v", err))
		default:
			lost = 0
			s := &now.Status
			if s.Failed > int32(len(r.seen)) {
				r.failures(ctx)
			}
			line := fmt.Sprintf("%d of %d indexes have ended", s.Succeeded, *now.Spec.Completions)
			if s.Active > 0 {
				line += fmt.Sprintf(", %s", terminal.Counted(int(s.Active), "pod"))
			}
			if s.FailedIndexes != nil && *s.FailedIndexes != "" {
				line += ", failed: " + *s.FailedIndexes
			}
			r.progress(line)
			switch ended(now) {
			case batchv1.JobComplete:
				r.clear()
				return nil
			case batchv1.JobFailed:
				r.failures(ctx)
				return r.failure(now)
			}
		}
		if !pause.For(ctx, look) {
			return ctx.Err()
		}
	}
}

// failure returns why a Job failed.
func (r *run) failure(j *batchv1.Job) error {
	text := fmt.Sprintf("Job %s/%s has failed", j.Namespace, j.Name)
	if s := j.Status.FailedIndexes; s != nil && *s != "" {
		text += " at the indexes " + *s
	}
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Message != "" {
			text += ": " + c.Message
		}
	}
	return &failedError{text + "; the same command continues with the results that are there"}
}

// lines is how many lines of a failed pod's log are printed.
const lines = 10

// failures reports the pods that have failed since the last call. Errors come back with the next state of the Job.
func (r *run) failures(ctx context.Context) {
	j := r.made.Job
	list, err := r.pods(ctx, j.Namespace, j.Name, corev1.PodFailed)
	if err != nil {
		return
	}
	for i := range list {
		p := &list[i]
		if r.seen[p.Name] {
			continue
		}
		r.seen[p.Name] = true
		why := p.Status.Reason
		for _, c := range p.Status.ContainerStatuses {
			if t := c.State.Terminated; t != nil {
				why = strings.TrimPrefix(why+fmt.Sprintf(", exit code %d", t.ExitCode), ", ")
				if t.Reason != "" && t.Reason != "Error" {
					why += ", " + t.Reason
				}
			}
		}
		r.note("index %s failed in pod %s (%s)", p.Annotations[batchv1.JobCompletionIndexAnnotation], p.Name, why)
		body, err := r.api.Open(ctx, http.MethodGet,
			apiclient.At("pods", p.Namespace, p.Name, "log")+fmt.Sprintf("?tailLines=%d", lines), nil)
		if err != nil {
			r.note("its log is gone: %v", err)
			continue
		}
		for s := bufio.NewScanner(io.LimitReader(body, 1<<16)); s.Scan(); {
			fmt.Fprintf(r.out.Stderr, "  %s\n", s.Text())
		}
		_ = body.Close()
	}
}

// collect runs the Job that prints the result, and returns a file with the result.
func (r *run) collect(ctx context.Context) (file string, err error) {
	j := r.made.collector()
	if err := r.again(ctx, j.Name); err != nil {
		return "", err
	}
	if err := r.api.Do(ctx, http.MethodPost, apiclient.At("jobs", j.Namespace), j, j); err != nil {
		return "", err
	}
	pod, err := r.started(ctx, j)
	if err != nil {
		return "", err
	}
	body, err := r.api.Open(ctx, http.MethodGet, apiclient.At("pods", j.Namespace, pod, "log")+"?follow=true", nil)
	if err != nil {
		return "", err
	}
	defer body.Close()
	f, err := os.CreateTemp("", "windtunnel-*.json")
	if err != nil {
		return "", exit.With(exit.Environment, err)
	}
	if r.made.Verbatim {
		if _, err = io.Copy(f, body); err == nil {
			r.verdict, err = r.judged(ctx, j.Namespace, pod)
		}
		return f.Name(), errors.Join(err, f.Close())
	}
	rest, found, err := objectsIn(f, body)
	if err = errors.Join(err, f.Close()); err != nil || !found {
		_ = os.Remove(f.Name())
		return "", errors.Join(err, fmt.Errorf("pod %s/%s, which collects, printed no result: %s", j.Namespace, pod,
			rest))
	}
	return f.Name(), nil
}

// objectsIn copies the JSON objects in a log, which begin lines, and returns some of the other lines.
func objectsIn(to io.Writer, log io.Reader) (rest string, found bool, err error) {
	in := bufio.NewReader(log)
	for inside := false; ; {
		line, err := in.ReadBytes('\n')
		switch {
		case inside || bytes.HasPrefix(line, []byte("{")):
			found = true
			if _, err := to.Write(line); err != nil {
				return "", false, err
			}
			if text := bytes.TrimRight(line, "\n"); !inside || string(text) == "}" {
				inside = string(text) == "{"
			}
		case len(rest) < 2000:
			rest += string(line)
		}
		if errors.Is(err, io.EOF) {
			return strings.TrimSpace(rest), found && !inside, nil
		}
		if err != nil {
			return "", false, err
		}
	}
}

// judged waits for the end of the pod that collects, and returns its exit code as a verdict.
func (r *run) judged(ctx context.Context, namespace, pod string) (verdict, err error) {
	for {
		var p corev1.Pod
		if err := r.api.Do(ctx, http.MethodGet, apiclient.At("pods", namespace, pod), nil, &p); err != nil {
			return nil, err
		}
		for _, c := range p.Status.ContainerStatuses {
			switch t := c.State.Terminated; {
			case t == nil:
			case t.ExitCode == 0:
				return nil, nil
			default:
				return exit.Reported(
					exit.Code(t.ExitCode),
					fmt.Errorf("pod %s/%s ended with exit code %d", namespace, pod,
						t.ExitCode),
				), nil
			}
		}
		if !pause.For(ctx, look) {
			return nil, ctx.Err()
		}
	}
}

// started waits until the pod of a Job has begun, and returns its name.
func (r *run) started(ctx context.Context, j *batchv1.Job) (string, error) {
	for {
		list, err := r.pods(ctx, j.Namespace, j.Name, "")
		if err != nil {
			return "", err
		}
		for i := range list {
			own := metav1.IsControlledBy(&list[i], j) // and no pod of an earlier Job of this name
			if own && list[i].Status.Phase != corev1.PodPending {
				return list[i].Name, nil
			}
		}
		now, err := r.job(ctx, j.Namespace, j.Name)
		if err != nil {
			return "", err
		}
		if len(list) == 0 && ended(now) != "" {
			return "", fmt.Errorf("Job %s/%s ended without a pod", j.Namespace, j.Name)
		}
		r.progress("collecting")
		if !pause.For(ctx, look) {
			return "", ctx.Err()
		}
	}
}

// clean deletes what was created.
func (r *run) clean(ctx context.Context) error {
	j := r.made.Job
	err := errors.Join(r.remove(ctx, "jobs", j.Namespace, r.made.collector().Name),
		r.remove(ctx, "jobs", j.Namespace, j.Name),
		r.remove(ctx, "configmaps", j.Namespace, r.made.Files.Name))
	if c := r.made.Claim; c != nil {
		err = errors.Join(err, r.remove(ctx, "persistentvolumeclaims", c.Namespace, c.Name))
	}
	return err
}

func (r *run) job(ctx context.Context, namespace, name string) (*batchv1.Job, error) {
	j := new(batchv1.Job)
	return j, r.api.Do(ctx, http.MethodGet, apiclient.At("jobs", namespace, name), nil, j)
}

// pods returns a Job's pods, in one phase or, for "", in all.
func (r *run) pods(ctx context.Context, namespace, job string, phase corev1.PodPhase) ([]corev1.Pod, error) {
	query := url.Values{"labelSelector": {batchv1.JobNameLabel + "=" + job}}
	if phase != "" {
		query.Set("fieldSelector", "status.phase="+string(phase))
	}
	var list corev1.PodList
	err := r.api.Do(ctx, http.MethodGet, apiclient.At("pods", namespace)+"?"+query.Encode(), nil, &list)
	return list.Items, err
}

// remove deletes an object, a Job with its pods.
func (r *run) remove(ctx context.Context, kind, namespace, name string) error {
	with := metav1.DeletePropagationBackground
	err := r.api.Do(ctx, http.MethodDelete, apiclient.At(kind, namespace, name),
		metav1.DeleteOptions{PropagationPolicy: &with}, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
