// The adapter against a server: blobs, and what Cairn promises beyond TanStack's rules.
import { createHash, randomBytes } from 'node:crypto'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { createBlobStore, createCheckpointStore, createForkedTranscripts } from '@cairnstate/tanstack-ai'
import { checkpoint, fileKey } from './conformance.js'
import { freshOrg, orgWith, restart } from './world.js'

const keyOf = (bytes: Uint8Array) => `sandbox-files/sha256/${createHash('sha256').update(bytes).digest('hex')}`

describe('blobs', () => {
  const fresh = async () => {
    const org = await freshOrg()
    return { blobs: createBlobStore({ ...org, threadId: 'a' }), store: createCheckpointStore(org) }
  }

  it('are kept by the digest of their bytes', async () => {
    const { blobs } = await fresh()
    const bytes = new Uint8Array(randomBytes(3 << 20))
    const key = keyOf(bytes)
    expect([await blobs.head(key), await blobs.get(key)]).toEqual([null, null])
    expect(await blobs.put(key, bytes)).toEqual({ key, size: bytes.length })
    expect(await blobs.put(key, bytes)).toEqual({ key, size: bytes.length })
    expect(await blobs.head(key)).toEqual({ key, size: bytes.length })
    const blob = await blobs.get(key)
    expect(blob).toMatchObject({ key, size: bytes.length })
    expect(keyOf(new Uint8Array(await blob!.arrayBuffer()))).toBe(key)
  })

  it.each<[string, (bytes: Uint8Array<ArrayBuffer>) => Parameters<ReturnType<typeof createBlobStore>['put']>[1]]>([
    ['a buffer', (bytes) => bytes.buffer],
    ['a view', (bytes) => new DataView(bytes.buffer)],
    ['a stream', (bytes) => new Blob([bytes]).stream()],
    ['a blob', (bytes) => new Blob([bytes])],
    ['a text', (bytes) => new TextDecoder().decode(bytes)],
  ])('are taken as %s', async (_, form) => {
    const { blobs } = await fresh()
    const bytes = new Uint8Array([...'Grüße\n'.repeat(1000)].join('').split('').map((c) => c.charCodeAt(0) & 0x7f))
    await blobs.put(keyOf(bytes), form(bytes))
    const blob = await blobs.get(keyOf(bytes))
    expect(await blob!.text()).toBe(new TextDecoder().decode(bytes))
    expect(await new Response(blob!.body).text()).toBe(await blob!.text())
  })

  it('may be empty', async () => {
    const { blobs } = await fresh()
    const key = keyOf(new Uint8Array())
    await blobs.put(key, new Uint8Array())
    expect(await blobs.head(key)).toEqual({ key, size: 0 })
    expect((await (await blobs.get(key))!.arrayBuffer()).byteLength).toBe(0)
  })

  it('are read in part', async () => {
    const { blobs } = await fresh()
    const bytes = new TextEncoder().encode('0123456789')
    await blobs.put(keyOf(bytes), bytes)
    const part = async (range: { offset: number; length?: number }) => {
      const { size, range: read, ...blob } = (await blobs.get(keyOf(bytes), { range }))!
      return { size, read, text: await blob.text() }
    }
    expect(await part({ offset: 2, length: 3 })).toEqual({ size: 10, read: { offset: 2, length: 3 }, text: '234' })
    expect(await part({ offset: 7 })).toEqual({ size: 10, read: { offset: 7, length: 3 }, text: '789' })
    expect(await part({ offset: 8, length: 50 })).toEqual({ size: 10, read: { offset: 8, length: 2 }, text: '89' })
  })

  it('are refused when the bytes are others', async () => {
    const { blobs } = await fresh()
    await expect(blobs.put(fileKey('1'), 'x')).rejects.toMatchObject({ name: 'SandboxSnapshotError', code: 'SANDBOX_SNAPSHOT_INVALID_BLOB' })
    expect(await blobs.head(fileKey('1'))).toBeNull()
  })

  it.each(['', 'x', '../checkpoints/1', 'sandbox-files/sha256/..', `sandbox-files/sha256/${'A'.repeat(64)}`, `sandbox-other/sha256/${'1'.repeat(64)}`])(
    'have no other key: %j',
    async (key) => {
      const { blobs } = await fresh()
      for (const use of [() => blobs.get(key), () => blobs.head(key), () => blobs.put(key, 'x')]) {
        await expect(use()).rejects.toMatchObject({ code: 'SANDBOX_SNAPSHOT_INVALID_BLOB' })
      }
    },
  )

  it('have to be there before a checkpoint names them', async () => {
    const { blobs, store } = await fresh()
    const bytes = new TextEncoder().encode('here')
    const next = checkpoint('1', null, { files: [{ path: 'f', kind: 'file', blobKey: keyOf(bytes), size: bytes.length }] })
    const writer = await store.acquireWriter('a')
    const error = await store.append({ checkpoint: next, expectedHeadId: null, writer }).catch((e: unknown) => e)
    expect(error).toMatchObject({ code: 'SANDBOX_SNAPSHOT_MISSING_BLOB', cause: { missing: [expect.stringContaining(keyOf(bytes).slice(-64))] } })
    expect(await store.getHead('a')).toBeNull()
    await blobs.put(keyOf(bytes), bytes)
    await store.append({ checkpoint: next, expectedHeadId: null, writer })
    expect(await store.get('1')).toEqual(next)
  })
})

describe('an answer that is lost', () => {
  /** A fetch that loses the first answer to what changes something. */
  const losing = async () => {
    const org = await freshOrg()
    let lost = 0
    const ask = org.fetch ?? fetch
    const losingFetch = async (url: string, init: RequestInit) => {
      const answer = await ask(url, init)
      if (init.method === 'GET' || lost++ % 2 === 1) return answer
      await answer.body?.cancel()
      throw new TypeError('the connection was reset')
    }
    return { store: createCheckpointStore({ ...org, fetch: losingFetch, externalBlobs: true, messages: null }), lost: () => lost }
  }

  it('takes a lease, appends, renews, forks, deletes and releases once', async () => {
    const { store, lost } = await losing()
    const writer = await store.acquireWriter('a')
    expect(await store.append({ checkpoint: checkpoint('1', null), expectedHeadId: null, writer })).toEqual({ headId: '1' })
    expect(await store.append({ checkpoint: checkpoint('2', '1'), expectedHeadId: '1', writer })).toEqual({ headId: '2' })
    await writer.renew()
    const destination = await store.acquireWriter('b')
    const fork = { sourceThreadId: 'a', sourceCheckpointId: '1', destinationThreadId: 'b', destinationCheckpointId: '3', createdAt: 5, writer: destination }
    expect((await store.forkFromCheckpoint(fork)).checkpoint.id).toBe('3')
    await store.deleteHead({ threadId: 'a', checkpointId: '2', writer })
    await writer.release()
    await (await store.acquireWriter('a')).release()
    expect((await store.list('a')).map(({ id }) => id)).toEqual(['1'])
    expect(await store.getHead('b')).toBe('3')
    expect(lost()).toBe(2 * 10)
  })
})

describe('an application that dies once a fork is made', () => {
  it('finds the transcript with the fork', async () => {
    const org = await freshOrg()
    const kept = new Map<string, unknown[]>()
    let alive = true
    const dying = async (url: string, init: RequestInit) => {
      if (!alive) throw new Error('the process is gone')
      const answer = await (org.fetch ?? fetch)(url, init)
      if (url.endsWith('/fork')) alive = false
      return answer
    }
    const messages = {
      loadThread: async (thread: string) => kept.get(thread) ?? [],
      saveThread: async (thread: string, list: unknown[]) => {
        if (!alive) throw new Error('the process is gone')
        kept.set(thread, list)
      },
    }
    const before = { ...org, fetch: dying, retries: 0 }
    const store = createCheckpointStore({ ...before, externalBlobs: true, messages: createForkedTranscripts({ ...before, messages }) })
    const source = { ...checkpoint('1', null), conversation: [{ role: 'user', content: 'half of it' }] }
    await store.append({ checkpoint: source, expectedHeadId: null, writer: await store.acquireWriter('a') })
    const writer = await store.acquireWriter('b')
    const fork = { sourceThreadId: 'a', sourceCheckpointId: '1', destinationThreadId: 'b', destinationCheckpointId: '2', createdAt: 5, writer }
    await expect(store.forkFromCheckpoint(fork)).rejects.toMatchObject({ code: 'unreachable' })
    expect(kept.size).toBe(0)

    alive = true
    const transcripts = createForkedTranscripts({ ...org, messages })
    expect(await transcripts.loadThread('b')).toEqual(source.conversation)
    expect(kept.get('b')).toEqual(source.conversation)
    expect(await createCheckpointStore(org).getHead('b')).toBe('2')
    expect(await transcripts.loadThread('c')).toEqual([])
  })
})

describe('a token for one thread', () => {
  it('reads and writes that thread alone', async () => {
    const [a, b] = await orgWith('a', 'b')
    const [storeA, storeB] = [createCheckpointStore(a!), createCheckpointStore(b!)]
    const [blobsA, blobsB] = [createBlobStore(a!), createBlobStore(b!)]
    const bytes = new TextEncoder().encode('of a alone')
    const files = [{ path: 'f', kind: 'file', blobKey: keyOf(bytes), size: bytes.length }] as const
    await blobsA.put(keyOf(bytes), bytes)
    const ofA = checkpoint('1', null, { files })
    await storeA.append({ checkpoint: ofA, expectedHeadId: null, writer: await storeA.acquireWriter('a') })
    expect(await storeA.listBlobReferences()).toEqual([{ key: keyOf(bytes), references: 1 }])

    expect([await storeB.get('1'), await blobsB.get(keyOf(bytes)), await blobsB.head(keyOf(bytes))]).toEqual([null, null, null])
    expect(await storeB.listBlobReferences()).toEqual([])
    for (const use of [() => storeB.getHead('a'), () => storeB.list('a'), () => storeB.acquireWriter('a')]) {
      await expect(use()).rejects.toMatchObject({ name: 'CairnError', code: 'thread_not_found', status: 404 })
    }
    const ofB = checkpoint('2', null, { threadId: 'b', files })
    const writer = await storeB.acquireWriter('b')
    await expect(storeB.append({ checkpoint: ofB, expectedHeadId: null, writer })).rejects.toMatchObject({ code: 'SANDBOX_SNAPSHOT_MISSING_BLOB' })
    await blobsB.put(keyOf(bytes), bytes)
    await storeB.append({ checkpoint: ofB, expectedHeadId: null, writer })
    expect(await (await blobsB.get(keyOf(bytes)))!.text()).toBe('of a alone')
  })
})

describe('a client whose clock is wrong', () => {
  afterEach(() => vi.useRealTimers())

  it.each([-1, 1])('by %i hours takes, renews and keeps its lease', async (hours) => {
    const store = createCheckpointStore({ ...(await freshOrg()), externalBlobs: true })
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + hours * 3_600_000 })
    const writer = await store.acquireWriter('a')
    await writer.renew()
    await store.append({ checkpoint: checkpoint('1', null), expectedHeadId: null, writer })
    await expect(store.acquireWriter('a')).rejects.toMatchObject({ code: 'SANDBOX_SNAPSHOT_WRITER_CONFLICT' })
    await writer.release()
    await (await store.acquireWriter('a')).release()
  })
})

describe('a server that crashes', () => {
  it('loses nothing and doubles nothing', async () => {
    const store = createCheckpointStore({ ...(await freshOrg()), externalBlobs: true, retries: 12 })
    const writer = await store.acquireWriter('a')
    let crashing = true
    const crashes = (async () => {
      for (let i = 0; i < 4; i++) {
        await new Promise((resolve) => setTimeout(resolve, 100 * Math.random()))
        await restart()
      }
      crashing = false
    })()
    const ids: string[] = []
    for (let head: string | null = null; crashing || ids.length < 20; head = ids.at(-1)!) {
      const id = `c${String(ids.length).padStart(6, '0')}`
      expect(await store.append({ checkpoint: checkpoint(id, head), expectedHeadId: head, writer })).toEqual({ headId: id })
      ids.push(id)
    }
    await crashes
    expect((await store.list('a')).map(({ id }) => id)).toEqual(ids)
    expect(await store.getHead('a')).toBe(ids.at(-1))
  }, 110_000)
})

describe('a sandbox that was left behind', () => {
  it('is refused, though the lease is free', async () => {
    const options = { ...(await freshOrg()), externalBlobs: true, refuseStale: true }
    const [first, second] = [createCheckpointStore(options), createCheckpointStore(options)]
    /** What TanStack's capture does: the head is read after the files. */
    const capture = async (store: typeof first, id: string) => {
      const writer = await store.acquireWriter('a')
      try {
        const head = await store.getHead('a')
        await store.append({ checkpoint: checkpoint(id, head), expectedHeadId: head, writer })
      } finally {
        await writer.release()
      }
    }
    const restore = async (store: typeof first) => store.get((await store.getHead('a'))!)
    await capture(first, '1')
    await restore(second)
    await capture(second, '2')
    await capture(second, '3')
    await expect(capture(first, '4')).rejects.toMatchObject({ name: 'SandboxCheckpointConflictError', code: 'SANDBOX_SNAPSHOT_STALE_HEAD' })
    expect((await first.list('a')).map(({ id }) => id)).toEqual(['1', '2', '3'])
    await restore(first)
    await capture(first, '5')
    await expect(capture(second, '6')).rejects.toMatchObject({ code: 'SANDBOX_SNAPSHOT_STALE_HEAD' })
    await second.get('2')
    await expect(capture(second, '6')).rejects.toMatchObject({ code: 'SANDBOX_SNAPSHOT_STALE_HEAD' })
    expect(await first.getHead('a')).toBe('5')

    const writer = await first.acquireWriter('a')
    await first.deleteHead({ threadId: 'a', checkpointId: '5', writer })
    await writer.release()
    await capture(first, '7')
    expect((await first.get('7'))?.parentCheckpointId).toBe('3')
  })
})
