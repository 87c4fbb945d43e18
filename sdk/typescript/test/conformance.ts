// The rules of TanStack's checkpoint store as tests, for any store.
import { describe, expect, it } from 'vitest'
import type { Checkpoint, CheckpointStore, ForkableCheckpointStore, TranscriptStore, Writer, WriterLease } from '@cairnstate/tanstack-ai'

/** A clock that a test moves, in milliseconds since 1970. */
export interface Clock {
  readonly now: number
}

/** How the suite gets a store without anything in it, whose leases go by the clock. */
export type MakeStore = (clock: Clock) => Promise<CheckpointStore>

const leaseMs = 120_000

export const fileKey = (digit: string) => `sandbox-files/sha256/${digit.repeat(64)}`

/** A checkpoint of thread `a` with one file, and what a test changes of it. */
export function checkpoint(id: string, parent: string | null, changes: Partial<Checkpoint> = {}): Checkpoint {
  return {
    id,
    threadId: 'a',
    parentCheckpointId: parent,
    createdAt: 1_000,
    reason: 'automatic',
    files: [{ path: 'src/main.ts', kind: 'file', blobKey: fileKey('1'), size: 4 }],
    conversation: [{ role: 'user', content: `begin ${id}` }],
    artifacts: [],
    ...changes,
  }
}

/** All that can be seen of a store's threads. */
async function seen(store: CheckpointStore, ...threads: string[]) {
  const all = []
  for (const thread of threads) all.push({ thread, head: await store.getHead(thread), list: await store.list(thread) })
  return { all, references: await store.listBlobReferences() }
}

/** Expects a refusal with a code that changes nothing of threads `a` and `b`. */
async function refused(store: CheckpointStore, what: () => Promise<unknown>, code: string) {
  const before = await seen(store, 'a', 'b')
  await expect(what()).rejects.toMatchObject({ code: `SANDBOX_SNAPSHOT_${code}` })
  expect(await seen(store, 'a', 'b')).toEqual(before)
}

async function chain(store: CheckpointStore, writer: Writer, ...ids: string[]) {
  let parent = await store.getHead(writer.threadId)
  for (const id of ids) {
    const next = checkpoint(id, parent, { threadId: writer.threadId })
    expect(await store.append({ checkpoint: next, expectedHeadId: parent, writer })).toEqual({ headId: id })
    parent = id
  }
}

export function storeConformance(name: string, make: MakeStore): void {
  describe(`checkpoint store: ${name}`, () => {
    const fresh = async () => {
      const clock = { now: 1_800_000_000_000 }
      return { clock, store: await make(clock) }
    }

    it('knows nothing of threads and checkpoints that are not there', async () => {
      const { store } = await fresh()
      expect(await store.get('nothing')).toBeNull()
      expect(await seen(store, 'nothing')).toEqual({ all: [{ thread: 'nothing', head: null, list: [] }], references: [] })
    })

    it('keeps a checkpoint as it was given', async () => {
      const { store } = await fresh()
      const writer = await store.acquireWriter('a')
      const whole = checkpoint('1', null, {
        createdAt: 1_234.5,
        reason: 'named',
        label: 'before the "refactoring" ☃',
        sourceRunId: 'run-1',
        files: [
          { path: 'empty', kind: 'dir' },
          { path: 'a b/ü\n.txt', kind: 'file', blobKey: fileKey('2'), size: 0 },
        ],
        conversation: [{ role: 'assistant', content: null, toolCalls: [{ id: '1', arguments: '{"a":1.50}' }] }, { role: 'tool', content: 'cut in an emoji: \ud83d' }],
        artifacts: [
          { artifactId: 'x', name: 'x.png', mimeType: 'image/png', size: 3, blobKey: `sandbox-artifacts/sha256/${'3'.repeat(64)}`, createdAt: 7 },
        ],
      })
      await store.append({ checkpoint: whole, expectedHeadId: null, writer })
      expect(await store.get('1')).toEqual(whole)
      expect(await store.list('a')).toEqual([whole])
    })

    it('makes a chain', async () => {
      const { store } = await fresh()
      await chain(store, await store.acquireWriter('a'), '1', '2', '3')
      expect(await store.getHead('a')).toBe('3')
      expect((await store.list('a')).map(({ id, parentCheckpointId }) => [id, parentCheckpointId])).toEqual([['1', null], ['2', '1'], ['3', '2']])
    })

    it('takes an absent parent for none', async () => {
      const { store } = await fresh()
      const { parentCheckpointId: _, ...orphan } = checkpoint('1', null)
      await store.append({ checkpoint: orphan as Checkpoint, expectedHeadId: null, writer: await store.acquireWriter('a') })
      expect(await store.get('1')).toEqual(checkpoint('1', null))
    })

    it('refuses a head that moved, another parent, and an id that is taken', async () => {
      const { store } = await fresh()
      const [a, b] = [await store.acquireWriter('a'), await store.acquireWriter('b')]
      await chain(store, a, '1', '2')
      const append = (id: string, parent: string | null, expectedHeadId: string | null) => () =>
        store.append({ checkpoint: checkpoint(id, parent), expectedHeadId, writer: a })
      await refused(store, append('3', '1', '1'), 'STALE_HEAD')
      await refused(store, append('3', null, null), 'STALE_HEAD')
      await refused(store, append('3', '1', '2'), 'PARENT_MISMATCH')
      await refused(store, append('3', null, '2'), 'PARENT_MISMATCH')
      await refused(store, append('1', '2', '2'), 'DUPLICATE_ID')
      const elsewhere = checkpoint('1', null, { threadId: 'b' })
      await refused(store, () => store.append({ checkpoint: elsewhere, expectedHeadId: null, writer: b }), 'DUPLICATE_ID')
    })

    it('checks in the order that tells most', async () => {
      const { store } = await fresh()
      const writer = await store.acquireWriter('a')
      await chain(store, writer, '1')
      const append = (changes: Partial<Checkpoint>, expectedHeadId: string | null, by: Writer) => () =>
        store.append({ checkpoint: checkpoint('1', null, changes), expectedHeadId, writer: by })
      const lost = { threadId: 'a', ownerToken: 'nobody', fence: writer.fence }
      await refused(store, append({}, 'other', writer), 'DUPLICATE_ID')
      await refused(store, append({ id: '2' }, 'other', writer), 'STALE_HEAD')
      await refused(store, append({}, 'other', lost), 'WRITER_LOST')
      await refused(store, append({ createdAt: NaN }, 'other', lost), 'INVALID_ENTRY')
      await refused(store, append({ createdAt: NaN }, '', lost), 'INVALID_ID')
    })

    it('asks for the writer of the thread', async () => {
      const { store } = await fresh()
      const [a, b] = [await store.acquireWriter('a'), await store.acquireWriter('b')]
      const by = (writer: Writer) => () => store.append({ checkpoint: checkpoint('1', null), expectedHeadId: null, writer })
      await refused(store, by(b), 'WRITER_LOST')
      await refused(store, by({ ...a, threadId: 'b' }), 'WRITER_LOST')
      await refused(store, by({ threadId: 'a', ownerToken: b.ownerToken, fence: a.fence }), 'WRITER_LOST')
      await refused(store, by({ threadId: 'a', ownerToken: a.ownerToken, fence: a.fence + 1 }), 'WRITER_LOST')
      await store.append({ checkpoint: checkpoint('1', null), expectedHeadId: null, writer: { ...a } })
    })

    it('keeps threads apart', async () => {
      const { store } = await fresh()
      await chain(store, await store.acquireWriter('a'), '1')
      await chain(store, await store.acquireWriter('b'), '2')
      expect((await store.list('a')).map(({ id }) => id)).toEqual(['1'])
      expect((await store.list('b')).map(({ id }) => id)).toEqual(['2'])
      expect([await store.getHead('a'), await store.getHead('b')]).toEqual(['1', '2'])
    })

    it('takes any thread name that a URL has to escape', async () => {
      const { store } = await fresh()
      for (const [i, thread] of ['a/b', 'a%2Fb', 'a b?x=1#y', '..a', 'Ünïcode 😀', '"\\'].entries()) {
        await chain(store, await store.acquireWriter(thread), `${thread} ${i}`)
        expect((await store.list(thread)).map(({ id }) => id)).toEqual([`${thread} ${i}`])
        expect((await store.get(`${thread} ${i}`))?.threadId).toBe(thread)
      }
    })

    it('lists by time, then by the bytes of ids', async () => {
      const { store } = await fresh()
      const writer = await store.acquireWriter('a')
      let parent: string | null = null
      for (const [id, createdAt] of [['é', 5], ['😀', 5], ['a', 5], ['\uffee', 5], ['B', 5], ['late', 6], ['early', -1]] as const) {
        const next: Checkpoint = checkpoint(id, parent, { createdAt })
        await store.append({ checkpoint: next, expectedHeadId: parent, writer })
        parent = id
      }
      expect((await store.list('a')).map(({ id }) => id)).toEqual(['early', 'B', 'a', 'é', '\uffee', '😀', 'late'])
      expect(await store.getHead('a')).toBe('early')
    })

    it('lists more than a page', async () => {
      const { store } = await fresh()
      const ids = Array.from({ length: 130 }, (_, i) => `c${String(i).padStart(3, '0')}`)
      await chain(store, await store.acquireWriter('a'), ...ids)
      expect((await store.list('a')).map(({ id }) => id)).toEqual(ids)
    })

    it.each(['', '\ud800', 'a\udc00b'])('refuses the id %j', async (id) => {
      const { store } = await fresh()
      const writer = await store.acquireWriter('a')
      const append = (changes: Partial<Checkpoint>, expectedHeadId: string | null = null) => () =>
        store.append({ checkpoint: checkpoint('1', null, changes), expectedHeadId, writer })
      await refused(store, append({ id }), 'INVALID_ID')
      await refused(store, append({ threadId: id }), 'INVALID_ID')
      await refused(store, append({ parentCheckpointId: id }), 'INVALID_ID')
      await refused(store, append({}, id), 'INVALID_ID')
      await refused(store, () => store.append({ checkpoint: checkpoint('1', null), expectedHeadId: null, writer: { ...writer, threadId: id } }), 'INVALID_ID')
      await refused(store, () => store.get(id), 'INVALID_ID')
      await refused(store, () => store.list(id), 'INVALID_ID')
      await refused(store, () => store.getHead(id), 'INVALID_ID')
      await refused(store, () => store.acquireWriter(id), 'INVALID_ID')
      await refused(store, () => store.deleteHead({ threadId: id, checkpointId: '1', writer }), 'INVALID_ID')
      await refused(store, () => store.deleteHead({ threadId: 'a', checkpointId: id, writer }), 'INVALID_ID')
    })

    const file = { path: 'f', kind: 'file', blobKey: fileKey('1'), size: 1 }
    const artifact = { artifactId: 'x', name: 'x', mimeType: 'text/plain', size: 1, blobKey: `sandbox-artifacts/sha256/${'1'.repeat(64)}`, createdAt: 1 }
    it.each<[string, object]>([
      ['a time that is none', { createdAt: NaN }],
      ['a time without end', { createdAt: Infinity }],
      ['no list of files', { files: null }],
      ['an entry that is none', { files: [null] }],
      ['an unknown kind', { files: [{ ...file, kind: 'socket' }] }],
      ...['', '/f', 'a//b', 'a/', './a', 'a/../b', '..', 'a\\b', 'C:/f', 'a\0b'].map((path): [string, object] => [`the path ${JSON.stringify(path)}`, { files: [{ ...file, path }] }]),
      ['a path twice', { files: [file, file] }],
      ['an entry beneath a file', { files: [file, { ...file, path: 'f/g' }] }],
      ['a file above an entry', { files: [{ ...file, path: 'f/g' }, file] }],
      ['a file without bytes', { files: [{ path: 'f', kind: 'file', size: 1 }] }],
      ['a key in capitals', { files: [{ ...file, blobKey: `sandbox-files/sha256/${'A'.repeat(64)}` }] }],
      ['a key of artifacts for a file', { files: [{ ...file, blobKey: artifact.blobKey }] }],
      ['a key that is no Unicode', { files: [{ ...file, blobKey: `${fileKey('1').slice(1)}\ud800` }] }],
      ['a size below zero', { files: [{ ...file, size: -1 }] }],
      ['a size in parts', { files: [{ ...file, size: 1.5 }] }],
      ['a size that is not exact', { files: [{ ...file, size: 2 ** 53 }] }],
      ['a directory with bytes', { files: [{ ...file, kind: 'dir' }] }],
      ['no list of artifacts', { artifacts: {} }],
      ['an artifact without a name', { artifacts: [{ ...artifact, name: '' }] }],
      ['an artifact with a key of files', { artifacts: [{ ...artifact, blobKey: fileKey('1') }] }],
      ['an artifact of no time', { artifacts: [{ ...artifact, createdAt: null }] }],
    ])('refuses %s', async (_, changes) => {
      const { store } = await fresh()
      const writer = await store.acquireWriter('a')
      const append = () => store.append({ checkpoint: checkpoint('1', null, changes), expectedHeadId: null, writer })
      await refused(store, append, 'INVALID_ENTRY')
    })

    it('is not changed by what the caller does to what it gave or got', async () => {
      const { store } = await fresh()
      const writer = await store.acquireWriter('a')
      const given = checkpoint('1', null)
      const appended = store.append({ checkpoint: given, expectedHeadId: null, writer })
      Object.assign(given.files[0]!, { path: 'changed' })
      given.conversation[0].content = 'changed'
      await appended
      for (const read of [() => store.get('1'), async () => (await store.list('a'))[0]!]) {
        const got = await read()
        expect(got).toEqual(checkpoint('1', null))
        Object.assign(got!.files[0]!, { path: 'changed' })
        expect(await read()).toEqual(checkpoint('1', null))
      }
    })

    it('counts each key once a checkpoint, in the order of bytes', async () => {
      const { store } = await fresh()
      const writer = await store.acquireWriter('a')
      const [one, two] = [fileKey('1'), fileKey('2')]
      const twice = checkpoint('1', null, { files: ['x', 'y'].map((path) => ({ path, kind: 'file', blobKey: two, size: 1 })) })
      await store.append({ checkpoint: twice, expectedHeadId: null, writer })
      expect(await store.listBlobReferences()).toEqual([{ key: two, references: 1 }])
      const both = checkpoint('2', '1', {
        files: [one, two].map((blobKey, i) => ({ path: `${i}`, kind: 'file', blobKey, size: 1 })),
        artifacts: [artifact],
      })
      await store.append({ checkpoint: both, expectedHeadId: '1', writer })
      await chain(store, await store.acquireWriter('b'), 'of b')
      const all = [
        { key: artifact.blobKey, references: 1 },
        { key: one, references: 2 },
        { key: two, references: 2 },
      ]
      expect(await store.listBlobReferences()).toEqual(all)
      await store.deleteHead({ threadId: 'a', checkpointId: '2', writer })
      expect(await store.listBlobReferences()).toEqual([{ key: one, references: 1 }, { key: two, references: 1 }])
    })

    it('deletes the head alone', async () => {
      const { store } = await fresh()
      const writer = await store.acquireWriter('a')
      await chain(store, writer, '1', '2')
      const remove = (checkpointId: string, by: Writer = writer) => () => store.deleteHead({ threadId: 'a', checkpointId, writer: by })
      await refused(store, remove('1'), 'NOT_HEAD')
      await refused(store, remove('nothing'), 'NOT_HEAD')
      await refused(store, remove('2', { ...writer, fence: 77 }), 'WRITER_LOST')
      await refused(store, remove('2', await store.acquireWriter('b')), 'WRITER_LOST')
      await remove('2')()
      expect([await store.getHead('a'), await store.get('2')]).toEqual(['1', null])
      await remove('1')()
      expect(await seen(store, 'a')).toEqual({ all: [{ thread: 'a', head: null, list: [] }], references: [] })
      await refused(store, remove('1'), 'NOT_HEAD')
      await chain(store, writer, '3')
    })

    it('has one writer a thread, and makes nobody wait', async () => {
      const { store } = await fresh()
      const lease = await store.acquireWriter('a')
      await refused(store, () => store.acquireWriter('a'), 'WRITER_CONFLICT')
      const other = await store.acquireWriter('b')
      await lease.release()
      const next = await store.acquireWriter('a')
      expect(next.fence).toBeGreaterThan(lease.fence)
      expect(next.ownerToken).not.toBe(lease.ownerToken)
      expect(next.threadId).toBe('a')
      await lease.release()
      await refused(store, () => store.acquireWriter('a'), 'WRITER_CONFLICT')
      await Promise.all([next.release(), other.release()])
    })

    it('renews from now on', async () => {
      const { clock, store } = await fresh()
      const lease = await store.acquireWriter('a')
      expect(lease.expiresAt).toBe(clock.now + leaseMs)
      expect(lease.renewAfterMs).toBeGreaterThan(0)
      expect(lease.renewAfterMs).toBeLessThan(leaseMs)
      for (let i = 0; i < 3; i++) {
        clock.now += lease.renewAfterMs
        expect(await lease.renew()).toEqual({ expiresAt: clock.now + leaseMs })
        expect(lease.expiresAt).toBe(clock.now + leaseMs)
      }
      await chain(store, lease, '1')
    })

    it.each([0, 1])('ends a lease at its time, or %i ms later, for good', async (late) => {
      const { clock, store } = await fresh()
      const old = await store.acquireWriter('a')
      await chain(store, old, '1')
      const uses: Array<(lease: WriterLease) => Promise<unknown>> = [
        (lease) => lease.renew(),
        (lease) => store.append({ checkpoint: checkpoint('2', '1'), expectedHeadId: '1', writer: lease }),
        (lease) => store.deleteHead({ threadId: 'a', checkpointId: '1', writer: lease }),
      ]
      clock.now += leaseMs + late
      for (const use of uses) await refused(store, () => use(old), 'WRITER_LOST')
      const next = await store.acquireWriter('a')
      expect(next.fence).toBeGreaterThan(old.fence)
      for (const use of uses) await refused(store, () => use(old), 'WRITER_LOST')
      await old.release()
      await refused(store, () => store.acquireWriter('a'), 'WRITER_CONFLICT')
      await chain(store, next, '2')
    })

    it('lasts until its last moment', async () => {
      const { clock, store } = await fresh()
      const lease = await store.acquireWriter('a')
      clock.now += leaseMs - 1
      await refused(store, () => store.acquireWriter('a'), 'WRITER_CONFLICT')
      await chain(store, lease, '1')
    })

    it('gives one of many at once the lease, and one of many the head', async () => {
      const { store } = await fresh()
      const leases = await Promise.allSettled(Array.from({ length: 8 }, () => store.acquireWriter('a')))
      const [writer, ...more] = leases.flatMap((lease) => (lease.status === 'fulfilled' ? [lease.value] : []))
      expect(more).toEqual([])
      const appends = await Promise.allSettled(
        Array.from({ length: 8 }, (_, i) => store.append({ checkpoint: checkpoint(`${i}`, null), expectedHeadId: null, writer: writer! })),
      )
      expect(appends.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
      for (const append of appends) {
        if (append.status === 'rejected') expect(append.reason).toMatchObject({ code: 'SANDBOX_SNAPSHOT_STALE_HEAD' })
      }
    })
  })
}

/** A store that can fork, with the transcripts that its forks write. */
export interface Snapshots {
  store: ForkableCheckpointStore
  messages: TranscriptStore
}

export function forkConformance(name: string, make: () => Promise<Snapshots>): void {
  describe(`fork: ${name}`, () => {
    /** Thread `a` with a root to fork and a newer head, and a writer of `b`. */
    const fresh = async () => {
      const { store, messages } = await make()
      const root = checkpoint('root', null, {
        reason: 'named',
        label: 'good',
        sourceRunId: 'run-1',
        artifacts: [
          { artifactId: 'x', name: 'x', mimeType: 'text/plain', size: 1, blobKey: `sandbox-artifacts/sha256/${'1'.repeat(64)}`, createdAt: 1 },
        ],
      })
      const writer = await store.acquireWriter('a')
      await store.append({ checkpoint: root, expectedHeadId: null, writer })
      await store.append({ checkpoint: checkpoint('head', 'root', { files: [] }), expectedHeadId: 'root', writer })
      await messages.saveThread('a', [{ role: 'user', content: 'newer' }])
      const input = {
        sourceThreadId: 'a',
        sourceCheckpointId: 'root',
        destinationThreadId: 'b',
        destinationCheckpointId: 'fork',
        createdAt: 20,
        writer: (await store.acquireWriter('b')) as Writer,
      }
      return { store, messages, root, writer, input }
    }
    const unforked = async ({ store, messages, input }: Awaited<ReturnType<typeof fresh>>, changes: Partial<typeof input>, code: string) => {
      const transcript = await messages.loadThread('b')
      await refused(store, () => store.forkFromCheckpoint({ ...input, ...changes }), code)
      expect(await messages.loadThread('b')).toEqual(transcript)
    }

    it('begins a thread with an older checkpoint, while the writer of its thread is held', async () => {
      const { store, messages, root, writer, input } = await fresh()
      const { checkpoint: fork } = await store.forkFromCheckpoint(input)
      const { label: _, sourceRunId: __, ...rest } = root
      expect(fork).toEqual({ ...rest, id: 'fork', threadId: 'b', createdAt: 20, reason: 'fork-root' })
      expect(await store.list('b')).toEqual([fork])
      expect(await store.getHead('b')).toBe('fork')
      expect(await store.getHead('a')).toBe('head')
      expect(await messages.loadThread('b')).toEqual(root.conversation)
      expect(await messages.loadThread('a')).toEqual([{ role: 'user', content: 'newer' }])
      const references = await store.listBlobReferences()
      expect(references.map((reference) => reference.references)).toEqual([2, 2])
      await store.deleteHead({ threadId: 'a', checkpointId: 'head', writer })
      await store.deleteHead({ threadId: 'a', checkpointId: 'root', writer })
      expect(await store.get('fork')).toEqual(fork)
      expect((await store.listBlobReferences()).map((reference) => reference.references)).toEqual([1, 1])
      await chain(store, input.writer, 'next')
    })

    it.each<[string, object, string]>([
      ['a checkpoint that is not there', { sourceCheckpointId: 'nothing' }, 'FORK_SOURCE_NOT_FOUND'],
      ['a checkpoint of another thread', { sourceThreadId: 'c' }, 'FORK_SOURCE_THREAD_MISMATCH'],
      ['a time that is none', { createdAt: NaN }, 'INVALID_ENTRY'],
      ['an id that is none', { destinationCheckpointId: '' }, 'INVALID_ID'],
      ['an id that is taken', { destinationCheckpointId: 'head' }, 'FORK_DESTINATION_NOT_EMPTY'],
      ['a writer that never was', { writer: { threadId: 'b', ownerToken: 'nobody', fence: 1 } }, 'WRITER_LOST'],
    ])('refuses %s', async (_, changes, code) => {
      await unforked(await fresh(), changes, code)
    })

    it('refuses to fork a thread into itself', async () => {
      const world = await fresh()
      await unforked(world, { destinationThreadId: 'a', writer: world.writer }, 'FORK_SOURCE_THREAD_MISMATCH')
    })

    it('refuses the writer of another thread, and one that let go', async () => {
      const world = await fresh()
      await unforked(world, { writer: world.writer }, 'WRITER_LOST')
      await (world.input.writer as WriterLease).release()
      await unforked(world, {}, 'WRITER_LOST')
    })

    it('refuses a thread that has a checkpoint or a transcript', async () => {
      const world = await fresh()
      await world.messages.saveThread('b', [{ role: 'user', content: 'here before' }])
      await unforked(world, {}, 'FORK_DESTINATION_NOT_EMPTY')
      // What is wrong with the source, and then with the writer, is told before.
      const lost = { ...world.input.writer, threadId: 'b', ownerToken: 'nobody' }
      const astray = { ...lost, threadId: 'c' }
      await unforked(world, { writer: lost }, 'WRITER_LOST')
      await unforked(world, { writer: astray }, 'WRITER_LOST')
      await unforked(world, { writer: astray, sourceThreadId: 'c' }, 'FORK_SOURCE_THREAD_MISMATCH')
      await unforked(world, { writer: astray, sourceCheckpointId: 'nothing' }, 'FORK_SOURCE_NOT_FOUND')
      await unforked(world, { writer: astray, sourceCheckpointId: 'nothing', sourceThreadId: 'b' }, 'FORK_SOURCE_THREAD_MISMATCH')
      await unforked(world, { writer: astray, sourceThreadId: 'b', createdAt: Infinity }, 'INVALID_ENTRY')
      await unforked(world, { writer: astray, sourceThreadId: 'b', createdAt: Infinity, sourceCheckpointId: '' }, 'INVALID_ID')
      await world.messages.saveThread('b', [])
      await chain(world.store, world.input.writer, 'one')
      await unforked(world, {}, 'FORK_DESTINATION_NOT_EMPTY')
    })
  })
}
