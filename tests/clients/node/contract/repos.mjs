// Repositories, their upstreams and credentials.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { api, commit, fixture, fresh, history, holder, names, narrow, nobody, pages, plain, quota, closed, store, stranger, until } from './world.mjs';

const upstream = { provider: 'gitea', owner: 'team', name: 'app', upstreamHost: process.env.UPSTREAM_HOST, defaultBranch: 'trunk' };
const follow = () => fresh({ baseRepo: upstream });
const synced = (repo) => until(async () => assert.deepEqual(await names(repo), ['trunk']));

export const repos = {
  'GitStorage.createRepo': {
    works: {
      async 'without options'() {
        const repo = await store.createRepo();
        assert.equal(repo.defaultBranch, 'main');
        assert.equal((await store.findOne({ id: repo.id })).defaultBranch, 'main');
      },
      async 'named, with a default branch'() {
        const id = `team/${randomUUID()}`;
        const repo = await store.createRepo({ id, defaultBranch: 'trunk' });
        assert.equal(repo.id, id);
        assert.equal((await store.findOne({ id })).defaultBranch, 'trunk');
      },
      async 'fork'() {
        const { repo, tip, session } = await fixture();
        const fork = await fresh({ baseRepo: { id: repo.id } });
        assert.deepEqual(await names(fork), ['feature', 'main']);
        assert.deepEqual(await names(fork, { ephemeral: true }), []);
        await commit(fork, 'main', { 'fork.txt': 'x\n' }, { expectedHeadSha: tip });
        assert.ok(!(await repo.listFiles()).paths.includes('fork.txt'));
        await assert.rejects(fork.getArchiveStream({ ref: session }), api(404));
      },
      async 'fork of a branch, of a commit'() {
        const { repo, first, feature } = await fixture();
        const one = await fresh({ baseRepo: { id: repo.id, ref: 'feature' } });
        assert.deepEqual((await one.listBranches()).branches.map((b) => b.headSha), [feature]);
        const old = await fresh({ baseRepo: { id: repo.id, sha: first } });
        assert.deepEqual((await old.listBranches()).branches.map((b) => b.headSha), [first]);
      },
      async 'sync from another host'() {
        const repo = await follow();
        await synced(repo);
        assert.equal((await store.findOne({ id: repo.id })).defaultBranch, 'trunk');
        const [listed] = (await store.listRepos({ q: repo.id })).repos;
        assert.deepEqual(listed.baseRepo, { provider: 'gitea', owner: 'team', name: 'app' });
      },
    },
    fails: {
      'one too many': [quota(507, api), () => narrow.createRepo()],
      'the name is taken': [plain(/already exists/), async () => store.createRepo({ id: (await fixture()).repo.id })],
      'the name was deleted': [plain(/already exists/), async () => {
        const { id } = await fresh();
        await store.deleteRepo({ id });
        return store.createRepo({ id });
      }],
      'a bad name': [api(400), () => store.createRepo({ id: 'a//b' })],
      'a bad default branch': [api(400), () => fresh({ defaultBranch: 'a..b' })],
      'a fork of nothing': [api(404), () => fresh({ baseRepo: { id: 'team/absent' } })],
      'a fork of an unknown branch': [api(404), async () => fresh({ baseRepo: { id: (await fixture()).repo.id, ref: 'absent' } })],
      'a fork of an unknown commit': [api(404), async () => fresh({ baseRepo: { id: (await fixture()).repo.id, sha: nobody } })],
      'GitHub without an app': [api(412), () => fresh({ baseRepo: { owner: 'team', name: 'app' } })],
      'a provider without a host': [api(400), () => fresh({ baseRepo: { provider: 'forgejo', owner: 'team', name: 'app' } })],
      'a private host': [api(400), () => fresh({ baseRepo: { ...upstream, upstreamHost: '127.0.0.1:1' } })],
      'an unknown key': [api(401), () => stranger.createRepo()],
      'the scope is missing': [api(403), async () => (await holder({ repo: 'contract/other', scopes: ['git:write'] })).createRepo({ id: 'contract/other' })],
      'a token of the whole org': [api(403), async () => (await holder({ repo: 'org', scopes: ['repo:write'] })).createRepo()],
    },
  },
  'GitStorage.findOne': {
    works: {
      async 'what is there'() {
        const { repo } = await fixture();
        const found = await store.findOne({ id: repo.id });
        assert.equal(found.id, repo.id);
        assert.equal(found.defaultBranch, 'main');
        assert.match(found.createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
      },
      async 'null for what is not'() {
        assert.equal(await store.findOne({ id: 'team/absent' }), null);
        const { id } = await fresh();
        await store.deleteRepo({ id });
        assert.equal(await store.findOne({ id }), null);
      },
    },
    fails: {
      'an unknown key': [api(401), async () => stranger.findOne({ id: (await fixture()).repo.id })],
      'the scope is missing': [api(403), async () => {
        const { repo } = await fixture();
        return (await holder({ repo: repo.id, scopes: ['repo:write'] })).findOne({ id: repo.id });
      }],
    },
  },
  'GitStorage.listRepos': {
    works: {
      async 'newest first, by pages'() {
        const mark = randomUUID();
        for (const n of [1, 2, 3]) await store.createRepo({ id: `${mark}/r${n}` });
        const listed = await pages((page) => store.listRepos({ q: mark.toUpperCase(), ...page }), 'repos');
        assert.deepEqual(listed.map((r) => r.url), [`${mark}/r3`, `${mark}/r2`, `${mark}/r1`]);
        for (const r of listed) assert.ok(r.repoId && r.defaultBranch === 'main' && r.createdAt && r.baseRepo === undefined);
        await store.deleteRepo({ id: `${mark}/r2` });
        assert.equal((await store.listRepos({ q: ` ${mark} ` })).repos.length, 2);
      },
      async 'nothing'() {
        assert.deepEqual(await store.listRepos({ q: 'no such name' }), { repos: [], nextCursor: undefined, hasMore: false });
      },
    },
    fails: {
      'a bad cursor': [api(400), () => store.listRepos({ cursor: 'x' })],
      'a bad limit': [api(400), () => store.listRepos({ limit: 0 })],
      'an unknown key': [api(401), () => stranger.listRepos()],
      'the scope is missing': [api(403), async () => (await holder({ repo: 'org', scopes: ['repo:write'] })).listRepos()],
    },
  },
  'GitStorage.deleteRepo': {
    works: {
      async 'at once'() {
        const { repo } = await history();
        const fork = await fresh({ baseRepo: { id: repo.id } });
        const gone = await store.deleteRepo({ id: repo.id });
        assert.ok(gone.repoId && gone.message);
        await assert.rejects(repo.listBranches(), api(404));
        assert.ok((await fork.listFiles()).paths.includes('README.md'), 'the fork outlives its parent');
      },
    },
    fails: {
      'never there': [plain(/not found/), () => store.deleteRepo({ id: 'team/absent' })],
      'deleted before': [plain(/already deleted/), async () => {
        const { id } = await fresh();
        await store.deleteRepo({ id });
        return store.deleteRepo({ id });
      }],
      'an unknown key': [api(401), async () => stranger.deleteRepo({ id: (await fixture()).repo.id })],
      'the scope is missing': [api(403), async () => {
        const { repo } = await fixture();
        return (await holder({ repo: repo.id, scopes: ['git:write', 'git:read'] })).deleteRepo({ id: repo.id });
      }],
    },
  },
  'GitStorage.createGitCredential': {
    works: {
      async 'without an upstream'() {
        const repo = await fresh();
        assert.ok((await store.createGitCredential({ repoId: repo.id, username: 'robot', password: 'one' })).id);
      },
    },
    fails: {
      'a second one': [plain(/already exists/), async () => {
        const repo = await fresh();
        await store.createGitCredential({ repoId: repo.id, password: 'one' });
        return store.createGitCredential({ repoId: repo.id, password: 'two' });
      }],
      'no password': [api(400), async () => store.createGitCredential({ repoId: (await fresh()).id, password: ' ' })],
      'no repository': [api(404), () => store.createGitCredential({ repoId: 'team/absent', password: 'one' })],
      'an unknown key': [api(401), async () => stranger.createGitCredential({ repoId: (await fixture()).repo.id, password: 'one' })],
      'the scope is missing': [api(403), async () => {
        const { repo } = await fixture();
        return (await holder({ repo: repo.id, scopes: ['git:write'] })).createGitCredential({ repoId: repo.id, password: 'one' });
      }],
    },
  },
  'GitStorage.updateGitCredential': {
    works: {
      async 'by its id'() {
        const { id } = await store.createGitCredential({ repoId: (await fresh()).id, password: 'one' });
        const updated = await store.updateGitCredential({ id, username: 'robot', password: 'two' });
        assert.equal(updated.id, id);
        assert.ok(!Number.isNaN(Date.parse(updated.createdAt)));
      },
    },
    fails: {
      'unknown': [plain(/Credential not found/), () => store.updateGitCredential({ id: 'cred_absent', password: 'two' })],
      'no password': [api(400), async () => {
        const { id } = await store.createGitCredential({ repoId: (await fresh()).id, password: 'one' });
        return store.updateGitCredential({ id, password: '' });
      }],
      'an unknown key': [api(401), () => stranger.updateGitCredential({ id: 'x', password: 'two' })],
      'the scope is missing': [api(403), async () => (await holder({ repo: 'org', scopes: ['org:read'] })).updateGitCredential({ id: 'x', password: 'two' })],
    },
  },
  'GitStorage.deleteGitCredential': {
    works: {
      async 'and another one can be made'() {
        const repo = await fresh();
        const { id } = await store.createGitCredential({ repoId: repo.id, password: 'one' });
        assert.equal(await store.deleteGitCredential({ id }), undefined);
        assert.notEqual((await store.createGitCredential({ repoId: repo.id, password: 'two' })).id, id);
      },
    },
    fails: {
      'deleted before': [plain(/Credential not found/), async () => {
        const { id } = await store.createGitCredential({ repoId: (await fresh()).id, password: 'one' });
        await store.deleteGitCredential({ id });
        return store.deleteGitCredential({ id });
      }],
      'an unknown key': [api(401), () => stranger.deleteGitCredential({ id: 'x' })],
      'the scope is missing': [api(403), async () => (await holder({ repo: 'org', scopes: ['org:read'] })).deleteGitCredential({ id: 'x' })],
    },
  },
  'Repo.pullUpstream': {
    call: (repo) => repo.pullUpstream(),
    works: {
      async 'asks for a sync'() {
        const repo = await follow();
        await synced(repo);
        assert.equal(await repo.pullUpstream(), undefined);
        assert.equal(await repo.pullUpstream({ ref: 'trunk' }), undefined);
      },
    },
    fails: {
      'no upstream': [api(400), async () => (await fresh()).pullUpstream()],
      'a policy': [api(403, /denied by policy/), async () => {
        const repo = await follow();
        await synced(repo);
        return repo.pullUpstream({ refPolicies: closed });
      }],
    },
  },
};
