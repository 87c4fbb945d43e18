package writes_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/checkpoint"
	"github.com/cairnstate/cairn/internal/tree"
	"github.com/cairnstate/cairn/tests/stack"
)

// checkpointCommands are those about checkpoints. ID and PARENT are ids of
// checkpoints, "-" for none; FILES are words that give the same file each time: a
// number is one of so many bytes, "2a" a file of its own.
//
//	send THREAD UPLOAD FILES...        sends the objects of a workspace
//	save THREAD ID PARENT FILES...     sends them and appends
//	append THREAD ID PARENT UPLOAD FILES...   appends what was sent
//	talk THREAD ID PARENT FILES...     save, with a conversation
//	crash THREAD ID PARENT FILES...    save; the process ends before the Change that appends
//	lose THREAD ID PARENT FILES...     save; the answer to that Change is lost
//	blob THREAD FILE                   puts the bytes of one file
//	manifest THREAD ID PARENT FILE     appends a list with that file
//	fork-from ID THREAD NEW            begins a thread
//	pin ID, unpin ID
//	forget ID                          deletes a checkpoint
//	prune THREAD KEEP
//	forget-thread THREAD
//	lease THREAD, renew THREAD, release THREAD
//	ask THREAD FILES...                asks what is missing
//	tidy, sweep-objects
var checkpointCommands map[string]func(w *world, args []string) (string, error)

func init() { // they refer to what refers to them
	checkpointCommands = map[string]func(w *world, args []string) (string, error){
		"send": (*world).sendObjects, "save": (*world).save, "append": (*world).appendSent, "talk": (*world).talk,
		"crash": (*world).crash, "lose": (*world).lose, "blob": (*world).putBlob, "manifest": (*world).manifest,
		"fork-from": (*world).forkFrom, "pin": (*world).pin, "unpin": (*world).unpin, "forget": (*world).forget,
		"prune": (*world).prune, "forget-thread": (*world).forgetThread, "lease": (*world).lease, "renew": (*world).renew,
		"release": (*world).release, "ask": (*world).ask, "tidy": (*world).tidy, "sweep-objects": (*world).sweepObjects,
	}
}

// fileOf is the content that a word stands for.
func fileOf(word string) string {
	digits := strings.TrimRight(word, "abcdefghijklmnopqrstuvwxyz")
	size, err := strconv.Atoi(digits)
	if err != nil {
		size = 100
	}
	var b strings.Builder
	for i := 0; b.Len() < size; i++ { // nothing compresses it below half
		d := tree.Sum(fmt.Appendf(nil, "%s %d", word, i))
		b.Write(d[:])
	}
	return b.String()[:size]
}

func workspaceOf(words []string) stack.Workspace {
	f := stack.Workspace{}
	for _, word := range words {
		f["d/"+word] = fileOf(word)
	}
	return f
}

func none(id string) string {
	if id == "-" {
		return ""
	}
	return id
}

// verdict is the code of a refusal, which is no error of a script.
func verdict(err error) (string, error) {
	if refused, ok := errors.AsType[*checkpoint.Error](err); ok {
		return strings.ToLower(strings.TrimPrefix(string(refused.Code), "SANDBOX_SNAPSHOT_")), nil
	}
	if errors.Is(err, errCrash) {
		return errCrash.Error(), nil
	}
	return "", err
}

func (w *world) sendObjects(args []string) (string, error) {
	_, objects := workspaceOf(args[2:]).Objects()
	return verdict(w.stack.Send(w.ctx, args[0], args[1], objects))
}

func (w *world) saved(args []string, n checkpoint.NewCheckpoint) (string, error) {
	n.Thread, n.ID, n.Expected.ID, n.Lease = args[0], args[1], none(args[2]), w.leases[args[0]]
	n.Upload = "upload-" + n.ID
	_, err := w.stack.Capture(w.ctx, workspaceOf(args[3:]), n)
	return verdict(err)
}

func (w *world) save(args []string) (string, error) { return w.saved(args, checkpoint.NewCheckpoint{}) }

func (w *world) talk(args []string) (string, error) {
	return w.saved(args, checkpoint.NewCheckpoint{Conversation: []byte(`[{"role":"user","content":"go on"}]`)})
}

// fateful saves, with a fate for the Change that appends.
func (w *world) fateful(fate string, args []string) (string, error) {
	root, objects := workspaceOf(args[3:]).Objects()
	if err := w.stack.Send(w.ctx, args[0], "upload-"+args[1], objects); err != nil {
		return "", err
	}
	w.fate = fate
	defer func() { w.fate = "" }()
	_, err := w.stack.Checkpoints.Append(w.ctx, stack.Caller, checkpoint.NewCheckpoint{
		Thread: args[0], ID: args[1], Expected: checkpoint.Head{ID: none(args[2])}, Root: root, Upload: "upload-" + args[1],
	})
	return verdict(err)
}

func (w *world) crash(args []string) (string, error) { return w.fateful("crashed", args) }

func (w *world) lose(args []string) (string, error) { return w.fateful("lost", args) }

func (w *world) appendSent(args []string) (string, error) {
	root, _ := workspaceOf(args[4:]).Objects()
	_, err := w.stack.Checkpoints.Append(w.ctx, stack.Caller, checkpoint.NewCheckpoint{
		Thread: args[0], ID: args[1], Expected: checkpoint.Head{ID: none(args[2])}, Root: root, Upload: args[3], Lease: w.leases[args[0]],
	})
	return verdict(err)
}

func (w *world) putBlob(args []string) (string, error) {
	text := fileOf(args[1])
	_, err := w.stack.Checkpoints.PutBlob(w.ctx, stack.Caller, args[0], "", tree.Sum([]byte(text)), strings.NewReader(text))
	return verdict(err)
}

func (w *world) manifest(args []string) (string, error) {
	text := fileOf(args[3])
	var parent any
	if id := none(args[2]); id != "" {
		parent = id
	}
	body, err := json.Marshal(map[string]any{
		"id": args[1], "threadId": args[0], "parentCheckpointId": parent, "createdAt": 1700000000000, "reason": "automatic",
		"files": []any{map[string]any{
			"path": args[3], "kind": "file", "size": len(text), "blobKey": "sandbox-files/sha256/" + tree.Sum([]byte(text)).String(),
		}},
		"conversation": []any{}, "artifacts": []any{},
	})
	expected, parentErr := json.Marshal(parent)
	if err = errors.Join(err, parentErr); err != nil {
		return "", err
	}
	_, err = w.stack.Checkpoints.AppendManifest(w.ctx, stack.Caller, checkpoint.NewManifest{
		Thread: args[0], Checkpoint: body, Expected: expected, Lease: w.leases[args[0]], WriterThread: args[0],
	})
	return verdict(err)
}

func (w *world) forkFrom(args []string) (string, error) {
	_, err := w.stack.Checkpoints.Fork(w.ctx, stack.Caller, checkpoint.Fork{
		Source: args[0], Thread: args[1], ID: args[2], MaySee: func(string) (bool, error) { return true, nil },
	})
	return verdict(err)
}

// of returns the thread of a checkpoint.
func (w *world) of(id string) (string, error) {
	c, err := w.stack.Checkpoints.Checkpoint(w.ctx, stack.Org, id)
	return c.Thread, err
}

func (w *world) pinned(id string, pinned bool) (string, error) {
	thread, err := w.of(id)
	if err == nil {
		err = w.stack.Checkpoints.Pin(w.ctx, stack.Caller, thread, id, pinned)
	}
	return verdict(err)
}

func (w *world) pin(args []string) (string, error) { return w.pinned(args[0], true) }

func (w *world) unpin(args []string) (string, error) { return w.pinned(args[0], false) }

func (w *world) forget(args []string) (string, error) {
	thread, err := w.of(args[0])
	if err == nil {
		_, err = w.stack.Checkpoints.Delete(w.ctx, stack.Caller, thread, args[0], w.leases[thread], nil)
	}
	return verdict(err)
}

func (w *world) prune(args []string) (string, error) {
	keep, err := strconv.ParseInt(args[1], 10, 64)
	if err == nil {
		_, err = w.stack.Checkpoints.Prune(w.ctx, stack.Caller, args[0], checkpoint.Rule{Keep: keep}, false, nil)
	}
	return verdict(err)
}

func (w *world) forgetThread(args []string) (string, error) {
	_, err := w.stack.Checkpoints.DeleteThread(w.ctx, stack.Caller, args[0], w.leases[args[0]], nil)
	return verdict(err)
}

func (w *world) lease(args []string) (string, error) {
	granted, err := w.stack.Checkpoints.Acquire(w.ctx, stack.Caller, args[0], "", 0)
	if err == nil {
		w.leases[args[0]] = &granted.Lease
	}
	return verdict(err)
}

func (w *world) renew(args []string) (string, error) {
	_, err := w.stack.Checkpoints.Renew(w.ctx, stack.Caller, args[0], *w.leases[args[0]], 0)
	return verdict(err)
}

func (w *world) release(args []string) (string, error) {
	err := w.stack.Checkpoints.Release(w.ctx, stack.Caller, args[0], *w.leases[args[0]])
	delete(w.leases, args[0])
	return verdict(err)
}

func (w *world) ask(args []string) (string, error) {
	_, objects := workspaceOf(args[1:]).Objects()
	digests := make([]tree.Digest, len(objects))
	for i := range objects {
		digests[i] = objects[i].Digest
	}
	missing, err := w.stack.Checkpoints.Missing(w.ctx, stack.Org, args[0], "", digests)
	if err != nil {
		return verdict(err)
	}
	return fmt.Sprintf("%d of %d are missing", len(missing), len(digests)), nil
}

func (w *world) tidy([]string) (string, error) {
	_, err := w.stack.Content.Tidy(w.ctx, stack.Org)
	return "", err
}

func (w *world) sweepObjects([]string) (string, error) {
	res, err := w.stack.Content.Sweep(w.ctx, stack.Org, w.stack.Checkpoints.Live)
	return fmt.Sprintf("%d condemned, %d rescued, %d removed, %d missing", res.Condemned, res.Rescued, res.Removed, res.Missing), err
}
