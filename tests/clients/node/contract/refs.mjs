// Branches, tags, notes and merges.
import assert from 'node:assert/strict';
import { api, author, closed, commit, fixture, forward, fresh, history, names, narrow, noise, nobody, pages, plain, quota, sha, update } from './world.mjs';

// conflict makes two branches that change one line differently.
async function conflict() {
  const h = await history();
  await commit(h.repo, 'left', { 'README.md': '# Left\nchanged line\nthird line\n' }, { baseBranch: 'main' });
  await commit(h.repo, 'right', { 'README.md': '# Right\nchanged line\nthird line\n' }, { baseBranch: 'main' });
  return h;
}

export const refs = {
  'Repo.listBranches': {
    call: (repo) => repo.listBranches(),
    works: {
      async 'normal and ephemeral'() {
        const { repo, tip, feature, session } = await fixture();
        const { branches } = await repo.listBranches();
        assert.deepEqual(branches.map((b) => [b.name, b.headSha]), [['main', tip], ['feature', feature]]);
        for (const b of branches) assert.match(b.createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
        assert.deepEqual((await repo.listBranches({ ephemeral: true })).branches.map((b) => [b.name, b.headSha]), [['session', session]]);
        assert.deepEqual((await pages((page) => repo.listBranches(page), 'branches')).map((b) => b.name), ['main', 'feature']);
        assert.deepEqual((await repo.listBranches({ cursor: branches[0].cursor })).branches.map((b) => b.name), ['feature']);
        assert.equal((await repo.listBranches({ cursor: '' })).branches.length, 2);
      },
      async 'nothing yet'() {
        assert.deepEqual(await (await fresh()).listBranches(), { branches: [], nextCursor: undefined, hasMore: false });
      },
    },
    fails: {
      'before its first sync': [api(409, /sync in progress/), async () => (await fresh({ baseRepo: { provider: 'gitea', owner: 'team', name: 'silent', upstreamHost: process.env.UPSTREAM_HOST } })).listBranches()],
      'a bad cursor': [api(400), async () => (await fixture()).repo.listBranches({ cursor: 'x' })],
      'a bad limit': [api(400), async () => (await fixture()).repo.listBranches({ limit: -1 })],
    },
  },
  'Repo.createBranch': {
    call: (repo) => repo.createBranch({ baseRef: 'main', targetBranch: 'x' }),
    works: {
      async 'from a branch, a tag, a commit, a revision'() {
        const { repo, first, tip } = await history();
        await repo.createTag({ name: 'v1', target: first });
        const made = await repo.createBranch({ baseBranch: 'main', targetBranch: 'release/1' });
        assert.deepEqual([made.targetBranch, made.targetIsEphemeral, made.commitSha], ['release/1', false, tip]);
        assert.ok(made.message);
        assert.equal((await repo.createBranch({ baseRef: 'v1', targetBranch: 'a' })).commitSha, first);
        assert.equal((await repo.createBranch({ baseRef: tip, targetBranch: 'b' })).commitSha, tip);
        assert.equal((await repo.createBranch({ baseRef: 'main~1', baseBranch: 'absent', targetBranch: 'c' })).commitSha, first);
        assert.equal((await repo.createBranch({ baseRef: 'refs/heads/main', targetBranch: 'd' })).commitSha, tip);
      },
      async 'ephemeral, and promoted'() {
        const { repo, session } = await history();
        const made = await repo.createBranch({ baseBranch: 'main', targetBranch: 'main', targetIsEphemeral: true });
        assert.equal(made.targetIsEphemeral, true);
        const promoted = await repo.createBranch({ baseBranch: 'session', baseIsEphemeral: true, targetBranch: 'session' });
        assert.deepEqual([promoted.commitSha, promoted.targetIsEphemeral], [session, false]);
        assert.deepEqual(await names(repo), ['feature', 'main', 'session']);
      },
    },
    fails: {
      'it exists': [api(409, /exists/), async () => (await fixture()).repo.createBranch({ baseRef: 'main', targetBranch: 'feature' })],
      'an unknown base': [api(404), async () => (await fixture()).repo.createBranch({ baseBranch: 'absent', targetBranch: 'x' })],
      'an ephemeral base without the flag': [api(404), async () => (await fixture()).repo.createBranch({ baseBranch: 'session', targetBranch: 'x' })],
      'a bad name': [api(400), async () => (await fixture()).repo.createBranch({ baseBranch: 'main', targetBranch: 'bad..name' })],
      'a policy': [api(403, /denied by policy/), async () => (await fixture()).repo.createBranch({ baseBranch: 'main', targetBranch: 'x', refPolicies: closed })],
      'no base': [plain(/required/), async () => (await fixture()).repo.createBranch({ targetBranch: 'x' })],
    },
  },
  'Repo.deleteBranch': {
    call: (repo) => repo.deleteBranch({ name: 'feature' }),
    works: {
      async 'of one namespace'() {
        const { repo } = await history();
        await repo.createBranch({ baseBranch: 'main', targetBranch: 'feature', targetIsEphemeral: true });
        const gone = await repo.deleteBranch({ name: 'feature' });
        assert.deepEqual([gone.name, gone.ephemeral], ['feature', false]);
        assert.ok(gone.message);
        assert.deepEqual(await names(repo, { ephemeral: true }), ['feature', 'session']);
        assert.equal((await repo.deleteBranch({ name: 'feature', ephemeral: true })).ephemeral, true);
        assert.deepEqual(await names(repo, { ephemeral: true }), ['session']);
      },
    },
    fails: {
      'not there': [api(404), async () => (await fixture()).repo.deleteBranch({ name: 'absent' })],
      'only ephemeral': [api(404), async () => (await fixture()).repo.deleteBranch({ name: 'session' })],
      'the default branch': [api(409), async () => (await fixture()).repo.deleteBranch({ name: 'main' })],
      'a policy': [api(403, /denied by policy/), async () => (await fixture()).repo.deleteBranch({ name: 'feature', refPolicies: closed })],
      'a policy against force': [api(403, /denied by policy/), async () => (await fixture()).repo.deleteBranch({ name: 'feature', refPolicies: forward })],
      'a full name': [plain(/refs/), async () => (await fixture()).repo.deleteBranch({ name: 'refs/heads/main' })],
    },
  },
  'Repo.listTags': {
    call: (repo) => repo.listTags(),
    works: {
      async 'by name, by pages'() {
        const { repo, first, tip } = await history();
        assert.deepEqual((await repo.listTags()).tags, []);
        for (const [name, target] of [['v2', tip], ['v1', first], ['a/b', tip]]) await repo.createTag({ name, target });
        const tags = await pages((page) => repo.listTags(page), 'tags');
        assert.deepEqual(tags.map((t) => [t.name, t.sha]), [['a/b', tip], ['v1', first], ['v2', tip]]);
        assert.deepEqual((await repo.listTags({ cursor: tags[1].cursor })).tags.map((t) => t.name), ['v2']);
      },
    },
    fails: { 'a bad cursor': [api(400), async () => (await fixture()).repo.listTags({ cursor: 'x' })] },
  },
  'Repo.createTag': {
    call: (repo) => repo.createTag({ name: 'x', target: nobody }),
    works: {
      async 'of a commit'() {
        const { repo, first } = await history();
        const tag = await repo.createTag({ name: 'v1.0', target: first });
        assert.deepEqual([tag.name, tag.sha], ['v1.0', first]);
        assert.ok(tag.message);
      },
    },
    fails: {
      'it exists': [api(409), async () => {
        const { repo, tip } = await history();
        await repo.createTag({ name: 'v1', target: tip });
        return repo.createTag({ name: 'v1', target: tip });
      }],
      'an unknown commit': [api(404), async () => (await fixture()).repo.createTag({ name: 'v1', target: nobody })],
      'a short target': [api(400), async () => (await fixture()).repo.createTag({ name: 'v1', target: 'main' })],
      'a bad name': [api(400), async () => (await fixture()).repo.createTag({ name: 'a b', target: nobody })],
      'a policy': [api(403, /denied by policy/), async () => {
        const { repo, tip } = await fixture();
        return repo.createTag({ name: 'v1', target: tip, refPolicies: closed });
      }],
      'a full name': [plain(/refs/), async () => (await fixture()).repo.createTag({ name: 'refs/tags/v1', target: nobody })],
    },
  },
  'Repo.deleteTag': {
    call: (repo) => repo.deleteTag({ name: 'x' }),
    works: {
      async 'and it is gone'() {
        const { repo, tip } = await history();
        await repo.createTag({ name: 'a/v1', target: tip });
        const gone = await repo.deleteTag({ name: 'a/v1' });
        assert.equal(gone.name, 'a/v1');
        assert.ok(gone.message);
        assert.deepEqual((await repo.listTags()).tags, []);
      },
    },
    fails: {
      'not there': [api(404), async () => (await fixture()).repo.deleteTag({ name: 'absent' })],
      'a policy': [api(403, /denied by policy/), async () => {
        const { repo, tip } = await history();
        await repo.createTag({ name: 'v1', target: tip });
        return repo.deleteTag({ name: 'v1', refPolicies: closed });
      }],
      'a full name': [plain(/refs/), async () => (await fixture()).repo.deleteTag({ name: 'refs/tags/v1' })],
    },
  },
  'Repo.getNote': {
    call: (repo) => repo.getNote({ sha: 'main' }),
    works: {
      async 'of a commit, under any ref'() {
        const { repo, tip } = await history();
        const { newRefSha } = await repo.createNote({ sha: tip, note: 'looks good', author });
        assert.deepEqual(await repo.getNote({ sha: tip }), { sha: tip, note: 'looks good', refSha: newRefSha });
        await repo.createNote({ sha: tip, note: 'elsewhere', ref: 'reviews' });
        assert.equal((await repo.getNote({ sha: tip, ref: 'refs/notes/reviews' })).note, 'elsewhere');
        assert.equal((await repo.getNote({ sha: tip, ref: 'notes/reviews' })).note, 'elsewhere');
      },
    },
    fails: {
      'no note': [api(404), async () => (await fixture()).repo.getNote({ sha: (await fixture()).tip })],
      'an unknown object': [api(404), async () => (await fixture()).repo.getNote({ sha: nobody })],
      'a ref elsewhere': [api(400), async () => (await fixture()).repo.getNote({ sha: 'main', ref: 'refs/heads/main' })],
      'a custom ref where there are none': [api(400, /custom notes refs are not enabled/), () => narrow.repo({ id: 'narrow' }).getNote({ sha: 'main', ref: 'reviews' })],
      'no object': [plain(/required/), async () => (await fixture()).repo.getNote({ sha: '' })],
    },
  },
  'Repo.createNote': {
    call: (repo) => repo.createNote({ sha: nobody, note: 'x' }),
    works: {
      async 'with its result'() {
        const { repo, tip, first } = await history();
        const made = await repo.createNote({ sha: tip, note: ' looks good\n', author });
        assert.deepEqual([made.sha, made.targetRef, made.baseCommit, made.result.success, made.result.status], [tip, 'refs/notes/commits', undefined, true, 'ok']);
        const next = await repo.createNote({ sha: first, note: 'x', expectedRefSha: made.newRefSha });
        assert.equal(next.baseCommit, made.newRefSha);
      },
    },
    fails: {
      'a note is there': [update('conflict'), async () => {
        const { repo, tip } = await history();
        await repo.createNote({ sha: tip, note: 'x' });
        return repo.createNote({ sha: tip, note: 'y' });
      }],
      'the ref moved': [(err) => {
        update('precondition_failed')(err);
        assert.equal(err.refUpdate.branch, 'refs/notes/commits');
        assert.match(err.refUpdate.newSha, sha);
        return true;
      }, async () => {
        const { repo, tip, first } = await history();
        await repo.createNote({ sha: tip, note: 'x' });
        return repo.createNote({ sha: first, note: 'y', expectedRefSha: nobody });
      }],
      'a policy': [update('forbidden', /denied by policy/), async () => {
        const { repo, tip } = await fixture();
        return repo.createNote({ sha: tip, note: 'x', refPolicies: closed });
      }],
      'an unknown object': [api(404), async () => (await fixture()).repo.createNote({ sha: nobody, note: 'x' })],
      'a bad guard': [api(400), async () => (await fixture()).repo.createNote({ sha: (await fixture()).tip, note: 'x', expectedRefSha: 'abc' })],
      'a custom ref where there are none': [api(400, /custom notes refs are not enabled/), () => narrow.repo({ id: 'narrow' }).createNote({ sha: 'main', note: 'x', ref: 'reviews' })],
      'more than there is room for': [quota(507, api), () => narrow.repo({ id: 'narrow' }).createNote({ sha: 'main', note: noise(30).toString('hex') })],
      'a blank note': [plain(/required/), async () => (await fixture()).repo.createNote({ sha: nobody, note: ' ' })],
    },
  },
  'Repo.appendNote': {
    call: (repo) => repo.appendNote({ sha: nobody, note: 'x' }),
    works: {
      async 'where there are no custom refs'() {
        const repo = narrow.repo({ id: 'narrow' });
        for (const ref of ['commits', 'refs/notes/commits']) assert.equal((await repo.appendNote({ sha: 'main', note: 'x', ref })).targetRef, 'refs/notes/commits');
        assert.equal((await repo.getNote({ sha: 'main' })).note, 'x\n\nx');
      },
      async 'to nothing, and to a note'() {
        const { repo, tip } = await history();
        const one = await repo.appendNote({ sha: tip, note: 'one' });
        const two = await repo.appendNote({ sha: tip, note: 'two', expectedRefSha: one.newRefSha, author });
        assert.equal(two.baseCommit, one.newRefSha);
        assert.equal((await repo.getNote({ sha: tip })).note, 'one\n\ntwo');
      },
    },
    fails: {
      'the ref moved': [update('precondition_failed'), async () => (await history()).repo.appendNote({ sha: 'main', note: 'y', expectedRefSha: nobody })],
      'a policy': [update('forbidden', /denied by policy/), async () => (await fixture()).repo.appendNote({ sha: (await fixture()).tip, note: 'x', refPolicies: closed })],
      'an unknown object': [api(404), async () => (await fixture()).repo.appendNote({ sha: nobody, note: 'x' })],
      'a custom ref where there are none': [api(400, /custom notes refs are not enabled/), () => narrow.repo({ id: 'narrow' }).appendNote({ sha: 'main', note: 'x', ref: 'reviews' })],
      'a blank note': [plain(/required/), async () => (await fixture()).repo.appendNote({ sha: nobody, note: '' })],
    },
  },
  'Repo.deleteNote': {
    call: (repo) => repo.deleteNote({ sha: nobody }),
    works: {
      async 'and it is gone'() {
        const { repo, tip } = await history();
        const made = await repo.createNote({ sha: tip, note: 'x', ref: 'reviews' });
        const gone = await repo.deleteNote({ sha: tip, ref: 'reviews', expectedRefSha: made.newRefSha, author });
        assert.deepEqual([gone.targetRef, gone.baseCommit, gone.result.status], ['refs/notes/reviews', made.newRefSha, 'ok']);
        await assert.rejects(repo.getNote({ sha: tip, ref: 'reviews' }), api(404));
      },
    },
    fails: {
      'no note': [api(404), async () => (await fixture()).repo.deleteNote({ sha: (await fixture()).tip })],
      'the ref moved': [update('precondition_failed'), async () => {
        const { repo, tip } = await history();
        await repo.createNote({ sha: tip, note: 'x' });
        return repo.deleteNote({ sha: tip, expectedRefSha: nobody });
      }],
      'a policy': [update('forbidden', /denied by policy/), async () => {
        const { repo, tip } = await history();
        await repo.createNote({ sha: tip, note: 'x' });
        return repo.deleteNote({ sha: tip, refPolicies: closed });
      }],
      'a custom ref where there are none': [api(400, /custom notes refs are not enabled/), () => narrow.repo({ id: 'narrow' }).deleteNote({ sha: 'main', ref: 'refs/notes/reviews' })],
      'no object': [plain(/required/), async () => (await fixture()).repo.deleteNote({ sha: '' })],
    },
  },
  'Repo.listNotesRefs': {
    call: (repo) => repo.listNotesRefs(),
    works: {
      async 'by name, by prefix'() {
        const { repo, tip } = await history();
        assert.deepEqual(await repo.listNotesRefs(), { refs: [], nextCursor: undefined, hasMore: false, prefix: 'refs/notes/' });
        for (const ref of ['reviews/b', 'reviews/a', 'ci']) await repo.createNote({ sha: tip, note: ref, ref });
        const listed = await pages((page) => repo.listNotesRefs(page), 'refs');
        assert.deepEqual(listed.map((r) => r.ref), ['refs/notes/ci', 'refs/notes/reviews/a', 'refs/notes/reviews/b']);
        for (const r of listed) assert.match(r.sha, sha);
        const some = await repo.listNotesRefs({ prefix: 'reviews/' });
        assert.equal(some.prefix, 'refs/notes/reviews/');
        assert.equal(some.refs.length, 2);
      },
    },
    fails: {
      'a bad cursor': [api(400), async () => (await fixture()).repo.listNotesRefs({ cursor: 'x' })],
      'a prefix elsewhere': [api(400), async () => (await fixture()).repo.listNotesRefs({ prefix: 'refs/heads/' })],
    },
  },
  'Repo.merge': {
    call: (repo) => repo.merge({ sourceBranch: 'feature', targetBranch: 'main', strategy: 'merge' }),
    works: {
      async 'a merge commit'() {
        const { repo, tip, feature } = await history();
        const merged = await repo.merge({ sourceBranch: 'feature', targetBranch: 'main', strategy: 'merge', expectedTargetSha: tip, commitMessage: 'Take it', author, committer: { name: 'Bot', email: 'bot@example.com' } });
        assert.equal(merged.result, 'merge_commit');
        assert.match(merged.treeSha, sha);
        assert.deepEqual(merged.source, { branch: 'feature', ephemeral: false, sha: feature });
        assert.deepEqual(merged.target, { branch: 'main', ephemeral: false, oldSha: tip, newSha: merged.commitSha });
        assert.deepEqual([merged.mergeBaseSha, merged.promotedCommits], [tip, 2]);
        const { commit: c } = await repo.getCommit({ sha: merged.commitSha });
        assert.deepEqual([c.parentShas, c.message, c.committerName], [[tip, feature], 'Take it', 'Bot']);
      },
      async 'forward, and nothing'() {
        const { repo, tip, feature } = await history();
        const forwarded = await repo.merge({ sourceBranch: 'feature', targetBranch: 'main', strategy: 'ff_prefer' });
        assert.deepEqual([forwarded.result, forwarded.commitSha, forwarded.target.oldSha, forwarded.target.newSha], ['fast_forward', feature, tip, feature]);
        const nothing = await repo.merge({ sourceBranch: 'feature', targetBranch: 'main', strategy: 'ff_only' });
        assert.deepEqual([nothing.result, nothing.promotedCommits, nothing.target.oldSha, nothing.target.newSha], ['no_op', 0, feature, feature]);
      },
      async 'squashed, of an ephemeral branch'() {
        const { repo, tip } = await history();
        const squashed = await repo.merge({ sourceBranch: 'session', sourceIsEphemeral: true, targetBranch: 'main', targetIsEphemeral: false, strategy: 'merge', squash: true });
        assert.equal(squashed.result, 'squash');
        assert.equal(squashed.source.ephemeral, true);
        assert.deepEqual((await repo.getCommit({ sha: squashed.commitSha })).commit.parentShas, [tip]);
      },
    },
    fails: {
      'a conflict': [(err) => {
        api(409, /conflict/)(err);
        assert.equal(err.body.conflict_type, 'merge_conflict');
        assert.deepEqual(err.body.conflict_paths, ['README.md']);
        assert.match(err.body.merge_base_sha, sha);
        return true;
      }, async () => (await conflict()).repo.merge({ sourceBranch: 'left', targetBranch: 'right', strategy: 'merge' })],
      'the target moved': [(err) => api(409)(err) && assert.equal(err.body.conflict_type, 'target_moved') === undefined,
        async () => (await fixture()).repo.merge({ sourceBranch: 'feature', targetBranch: 'main', strategy: 'merge', expectedTargetSha: nobody })],
      'no way forward': [(err) => api(409)(err) && assert.equal(err.body.conflict_paths, undefined) === undefined,
        async () => (await conflict()).repo.merge({ sourceBranch: 'left', targetBranch: 'right', strategy: 'ff_only' })],
      'an unknown source': [api(404), async () => (await fixture()).repo.merge({ sourceBranch: 'absent', targetBranch: 'main', strategy: 'merge' })],
      'an unknown target': [api(404), async () => (await fixture()).repo.merge({ sourceBranch: 'main', targetBranch: 'absent', strategy: 'merge' })],
      'an ephemeral source without the flag': [api(404), async () => (await fixture()).repo.merge({ sourceBranch: 'session', targetBranch: 'main', strategy: 'merge' })],
      'a policy': [api(403, /denied by policy/), async () => (await fixture()).repo.merge({ sourceBranch: 'feature', targetBranch: 'main', strategy: 'merge', refPolicies: closed })],
      'a bad guard': [api(400), async () => (await fixture()).repo.merge({ sourceBranch: 'feature', targetBranch: 'main', strategy: 'merge', expectedTargetSha: 'abc' })],
      'a bad strategy': [plain(/strategy/), async () => (await fixture()).repo.merge({ sourceBranch: 'feature', targetBranch: 'main', strategy: 'other' })],
      'squash without a merge': [plain(/squash/), async () => (await fixture()).repo.merge({ sourceBranch: 'feature', targetBranch: 'main', strategy: 'ff_only', squash: true })],
    },
  },
  'Repo.previewMerge': {
    call: (repo) => repo.previewMerge({ sourceBranch: 'feature', targetBranch: 'main' }),
    works: {
      async 'clean'() {
        const { repo, tip, feature } = await fixture();
        const preview = await repo.previewMerge({ sourceBranch: 'feature', targetBranch: 'main', includeContent: false });
        assert.deepEqual([preview.status, preview.result, preview.sourceBranch, preview.targetBranch, preview.sourceTipSha, preview.targetTipSha, preview.mergeBaseSha],
          ['clean', 'fast_forward', 'feature', 'main', feature, tip, tip]);
        assert.deepEqual([preview.conflictPaths, preview.conflicts, preview.filteredConflicts], [[], [], []]);
        assert.equal((await repo.previewMerge({ sourceBranch: 'main', targetBranch: 'feature' })).result, 'no_op');
      },
      async 'in conflict, with content'() {
        const { repo } = await conflict();
        const preview = await repo.previewMerge({ sourceBranch: 'left', targetBranch: 'right', includeContent: true });
        assert.deepEqual([preview.status, preview.result, preview.conflictPaths], ['conflicted', 'merge_commit', ['README.md']]);
        const [c] = preview.conflicts;
        assert.equal(c.path, 'README.md');
        assert.match(c.base.content, /# Hello/);
        assert.match(c.ours.content, /# Right/);
        assert.match(c.theirs.content, /# Left/);
        for (const side of [c.result, c.base, c.ours, c.theirs]) assert.deepEqual([side.truncated, side.binary], [false, false]);
        assert.match(c.ours.oid, sha);
        const bare = await repo.previewMerge({ sourceBranch: 'left', targetBranch: 'right' });
        assert.equal(bare.conflicts[0].ours.content, undefined);
      },
    },
    fails: {
      'an unknown source': [api(404), async () => (await fixture()).repo.previewMerge({ sourceBranch: 'absent', targetBranch: 'main' })],
      'an unknown target': [api(404), async () => (await fixture()).repo.previewMerge({ sourceBranch: 'main', targetBranch: 'absent' })],
      'no source': [plain(/required/), async () => (await fixture()).repo.previewMerge({ targetBranch: 'main' })],
    },
  },
};
