// How requests are sent, answered, repeated and given up: without a server.
import { describe, expect, it, vi } from 'vitest'
import { createBlobStore, createCheckpointStore, createForkedTranscripts, type ConnectionOptions } from '@cairnstate/tanstack-ai'
import { checkpoint, fileKey } from './conformance.js'

interface Sent {
  url: string
  method: string | undefined
  headers: Headers
  body: unknown
}

type Step = Response | Error | ((init: RequestInit) => Promise<Response>)

/** Options with a fetch that takes one step after the other, and what it was sent. */
function scripted(steps: Step[], more: Partial<ConnectionOptions> = {}) {
  const sent: Sent[] = []
  const fetch = async (url: string, init: RequestInit) => {
    sent.push({ url, method: init.method, headers: new Headers(init.headers), body: init.body })
    const step = steps.shift()
    if (step === undefined) throw new Error('one request more than expected')
    if (step instanceof Error) throw step
    return typeof step === 'function' ? step(init) : step
  }
  return { sent, options: { url: 'https://cairn.test/at/', token: 'secret', fetch, ...more } }
}

const answer = (status: number, body: object, headers: Record<string, string> = {}) => new Response(JSON.stringify(body), { status, headers })
const busy = () => answer(503, { code: 'unavailable', error: 'try again later' })
const writer = { threadId: 'a', ownerToken: 'token', fence: 1 }
const input = () => ({ checkpoint: checkpoint('1', null), expectedHeadId: null, writer })

/** A fetch that never answers, but ends as fetch does. */
const silent: Step = (init) =>
  new Promise((_, reject) => init.signal!.addEventListener('abort', () => reject(init.signal!.reason as Error)))

describe('requests', () => {
  it('go below the path of the server, with the token', async () => {
    const { sent, options } = scripted([answer(200, { name: 'a/b', head: '1' })])
    expect(await createCheckpointStore(options).getHead('a/b')).toBe('1')
    expect(sent[0]!.url).toBe('https://cairn.test/at/api/threads/a%2Fb')
    expect(sent[0]!.headers.get('Authorization')).toBe('Bearer secret')
  })

  it('ask for a token each time', async () => {
    let tokens = 0
    const { sent, options } = scripted([busy(), answer(200, { head: '1' })], { token: async () => `token ${++tokens}` })
    await createCheckpointStore(options).getHead('a')
    expect(sent.map(({ headers }) => headers.get('Authorization'))).toEqual(['Bearer token 1', 'Bearer token 2'])
  })

  it('fail as the token does', async () => {
    const { sent, options } = scripted([], { token: () => Promise.reject(new RangeError('no key')) })
    await expect(createCheckpointStore(options).getHead('a')).rejects.toThrow(new RangeError('no key'))
    expect(sent).toEqual([])
  })

  it.each(['cairn.test', 'ftp://cairn.test', 'https://t:secret@cairn.test', 'https://cairn.test/?token=1'])('do not go to %s', (url) => {
    expect(() => createCheckpointStore({ url, token: 'secret' })).toThrow(TypeError)
  })
})

describe('a failure that passes', () => {
  it.each<[string, () => Step]>([
    ['a network that fails', () => new TypeError('fetch failed')],
    ['another error of a network', () => new Error('Network connection lost.')],
    ['a busy server', busy],
    ['a limit', () => answer(429, { code: 'rate_limited', error: 'later' }, { 'Retry-After': '0' })],
    ['a gateway', () => new Response('<html>', { status: 502 })],
    ['an answer that breaks off', () => new Response(new ReadableStream({ start: (to) => to.error(new Error('reset')) }))],
  ])('is tried again with the same key and body: %s', async (_, step) => {
    const { sent, options } = scripted([step(), step(), answer(201, { head: '1' })])
    expect(await createCheckpointStore(options).append(input())).toEqual({ headId: '1' })
    const keys = new Set(sent.map(({ headers }) => headers.get('Idempotency-Key')))
    expect(sent).toHaveLength(3)
    expect([...keys]).toEqual([expect.stringMatching(/^[0-9a-f-]{36}$/)])
    expect(new Set(sent.map(({ body }) => body)).size).toBe(1)
  })

  it('has another key for each call', async () => {
    const { sent, options } = scripted([answer(201, { head: '1' }), answer(201, { head: '1' })])
    const store = createCheckpointStore(options)
    await store.append(input())
    await store.append(input())
    expect(new Set(sent.map(({ headers }) => headers.get('Idempotency-Key'))).size).toBe(2)
  })

  it('is told when it lasts', async () => {
    const { sent, options } = scripted([busy(), busy(), busy()], { retries: 2 })
    await expect(createCheckpointStore(options).getHead('a')).rejects.toMatchObject({ name: 'CairnError', code: 'unavailable', status: 503 })
    expect(sent).toHaveLength(3)
  })

  it('waits as long as the server says', async () => {
    vi.useFakeTimers()
    try {
      const { sent, options } = scripted([answer(429, {}, { 'Retry-After': '7' }), answer(200, { head: '1' })])
      const head = createCheckpointStore(options).getHead('a')
      await vi.advanceTimersByTimeAsync(6_999)
      expect(sent).toHaveLength(1)
      await vi.advanceTimersByTimeAsync(1)
      expect(await head).toBe('1')
    } finally {
      vi.useRealTimers()
    }
  })

  it('does not wait for hours', async () => {
    const { options } = scripted([answer(429, { code: 'rate_limited', error: 'later' }, { 'Retry-After': '3600' })])
    await expect(createCheckpointStore(options).getHead('a')).rejects.toMatchObject({ code: 'rate_limited', retryAfterMs: 3_600_000 })
  })

  it('ends an upload that cannot be sent twice', async () => {
    const { options } = scripted([busy()])
    const body = new Blob(['x']).stream()
    await expect(createBlobStore(options).put(fileKey('1'), body)).rejects.toMatchObject({ code: 'unavailable' })
  })
})

describe('a refusal', () => {
  it.each([400, 401, 403, 409, 500])('with status %i is not tried again', async (status) => {
    const { sent, options } = scripted([answer(status, { code: 'word', error: 'told why' })])
    await expect(createCheckpointStore(options).append(input())).rejects.toMatchObject({ code: 'word', status, message: 'told why' })
    expect(sent).toHaveLength(1)
  })

  it('of a blob that is missing names it', async () => {
    const { options } = scripted([answer(409, { code: 'SANDBOX_SNAPSHOT_MISSING_BLOB', error: 'no', missing: [fileKey('1')] })])
    const error = await createCheckpointStore(options).append(input()).catch((e: unknown) => e)
    expect(error).toMatchObject({ name: 'SandboxSnapshotError', code: 'SANDBOX_SNAPSHOT_MISSING_BLOB', cause: { missing: [fileKey('1')], status: 409 } })
  })

  it('is told of what is not Cairn', async () => {
    const { options } = scripted([new Response('hello'), new Response(null, { status: 302, headers: { Location: '/login' } })])
    const store = createCheckpointStore(options)
    await expect(store.getHead('a')).rejects.toMatchObject({ code: 'unexpected_answer', status: 200 })
    await expect(store.getHead('a')).rejects.toMatchObject({ code: 'unexpected_answer', status: 302 })
    const other = scripted([new Response('no such page', { status: 404 }), new Response('no such page', { status: 404 })])
    await expect(createBlobStore(other.options).get(fileKey('1'))).rejects.toMatchObject({ code: 'unexpected_answer', status: 404 })
    await expect(createCheckpointStore(other.options).get('1')).rejects.toMatchObject({ code: 'unexpected_answer', status: 404 })
  })
})

describe('a time limit', () => {
  it('ends an attempt, and the next one may do', async () => {
    const { options } = scripted([silent, answer(200, { head: '1' })], { timeoutMs: 200 })
    expect(await createCheckpointStore(options).getHead('a')).toBe('1')
  })

  it('ends an answer that stops coming', async () => {
    const stuck = () => new Response(new ReadableStream({ start: (to) => to.enqueue(new Uint8Array(1)) }))
    const body: Step = async (init) => {
      const response = stuck()
      const read = response.body!.getReader()
      return new Response(
        new ReadableStream({
          start: (to) => init.signal!.addEventListener('abort', () => to.error(init.signal!.reason)),
          pull: async (to) => to.enqueue((await read.read()).value),
        }),
      )
    }
    const { options } = scripted([body], { timeoutMs: 20, retries: 0 })
    await expect(createBlobStore(options).get(fileKey('1'))).rejects.toMatchObject({ code: 'timeout' })
  })

  it('gives a long answer its time while it comes on', async () => {
    const slow: Step = async () => {
      let parts = 0
      return new Response(
        new ReadableStream({
          async pull(to) {
            await new Promise((resolve) => setTimeout(resolve, 30))
            if (++parts > 8) to.close()
            else to.enqueue(new Uint8Array([parts]))
          },
        }),
      )
    }
    const { options } = scripted([slow], { timeoutMs: 120, retries: 0 })
    const blob = await createBlobStore(options).get(fileKey('1'))
    expect(new Uint8Array(await blob!.arrayBuffer())).toEqual(new Uint8Array([1, 2, 3, 4, 5, 6, 7, 8]))
  })
})

describe('a signal', () => {
  it('of the call ends it', async () => {
    const stop = new AbortController()
    const { options } = scripted([silent])
    const head = createCheckpointStore(options).getHead('a', { signal: stop.signal })
    stop.abort(new Error('enough'))
    await expect(head).rejects.toThrow('enough')
  })

  it('ends the wait between attempts', async () => {
    const stop = new AbortController()
    const { sent, options } = scripted([answer(503, {}, { 'Retry-After': '20' })], { signal: stop.signal })
    const head = createCheckpointStore(options).getHead('a')
    await vi.waitFor(() => expect(sent).toHaveLength(1))
    stop.abort(new Error('enough'))
    await expect(head).rejects.toThrow('enough')
  })

  it('that came before sends nothing', async () => {
    const { sent, options } = scripted([], { signal: AbortSignal.abort(new Error('over')) })
    await expect(createCheckpointStore(options).getHead('a')).rejects.toThrow('over')
    expect(sent).toEqual([])
  })
})

describe('a checkpoint of the command line', () => {
  it('is not handed out without what TanStack cannot express', async () => {
    const native = { id: 'n', kind: 'native', root: 'f'.repeat(64) }
    const { options } = scripted([answer(200, native), answer(200, { checkpoints: [native], has_more: false })])
    const store = createCheckpointStore(options)
    await expect(store.get('n')).rejects.toMatchObject({ code: 'native_checkpoint' })
    await expect(store.list('a')).rejects.toMatchObject({ code: 'native_checkpoint' })
  })
})

describe('a fork', () => {
  const fork = { sourceThreadId: 'a', sourceCheckpointId: '1', destinationThreadId: 'b', destinationCheckpointId: '2', createdAt: 1, writer: { ...writer, threadId: 'b' } }

  it('is there only with the transcripts, or the word that there are none', () => {
    const { options } = scripted([])
    expect('forkFromCheckpoint' in createCheckpointStore(options)).toBe(false)
    expect(createCheckpointStore({ ...options, messages: null })).toHaveProperty('forkFromCheckpoint')
  })

  it('has its transcript from its first checkpoint until the application has one', async () => {
    const saved: unknown[] = []
    const kept = { loadThread: async () => saved.slice(), saveThread: async (_: string, list: unknown[]) => void saved.push(...list) }
    const root = { ...checkpoint('2', null), reason: 'fork-root', conversation: [{ role: 'user', content: 'hi' }] }
    const { sent, options } = scripted([answer(200, { checkpoints: [{ id: '2', kind: 'manifest', manifest: root }] })])
    const transcripts = createForkedTranscripts({ ...options, messages: kept })
    expect(await transcripts.loadThread('b')).toEqual(root.conversation)
    expect(saved).toEqual(root.conversation)
    await transcripts.saveThread('b', [{ role: 'assistant', content: 'hello' }])
    expect(await transcripts.loadThread('b')).toEqual([...root.conversation, { role: 'assistant', content: 'hello' }])
    expect(sent.map(({ url }) => url)).toEqual(['https://cairn.test/at/api/threads/b/checkpoints?order=asc&limit=1&manifests=true'])
  })

  it.each<[string, unknown[]]>([
    ['has no checkpoint', []],
    ['began without a fork', [{ id: '1', kind: 'manifest', manifest: checkpoint('1', null) }]],
    ['was begun by cairn capture', [{ id: '1', kind: 'native' }]],
  ])('is not where a transcript comes from when a thread %s', async (_, checkpoints) => {
    const { options } = scripted([answer(200, { checkpoints })])
    const messages = { loadThread: async () => [], saveThread: () => Promise.reject(new Error('nothing is to be written')) }
    expect(await createForkedTranscripts({ ...options, messages }).loadThread('b')).toEqual([])
  })

  it('is taken back when its transcript cannot be written', async () => {
    const source = { id: '1', kind: 'manifest', manifest: checkpoint('1', null) }
    const { sent, options } = scripted([answer(200, source), answer(201, { id: '2' }), answer(200, { id: '2' })])
    const messages = { loadThread: async () => [], saveThread: () => Promise.reject(new Error('disk full')) }
    await expect(createCheckpointStore({ ...options, messages }).forkFromCheckpoint(fork)).rejects.toThrow('disk full')
    expect(sent.map(({ method, url }) => [method, new URL(url).pathname])).toEqual([
      ['GET', '/at/api/checkpoints/1'],
      ['POST', '/at/api/checkpoints/1/fork'],
      ['DELETE', '/at/api/threads/b/head'],
    ])
  })
})

describe('what went wrong', () => {
  it('is told with the reason that fetch hides', async () => {
    const refused = Object.assign(new TypeError('fetch failed'), { cause: new Error('connect ECONNREFUSED 127.0.0.1:1') })
    const { options } = scripted([refused, new Error('Network connection lost.')], { retries: 0 })
    const store = createCheckpointStore(options)
    await expect(store.getHead('a')).rejects.toThrow('Cairn could not be reached: connect ECONNREFUSED 127.0.0.1:1')
    await expect(store.getHead('a')).rejects.toThrow('Cairn could not be reached: Network connection lost.')
  })

  it.each([302, 404, 500])('is told of an answer %i that is not of Cairn', async (status) => {
    const { options } = scripted([new Response('<html>', { status })], { retries: 0 })
    await expect(createCheckpointStore(options).getHead('a')).rejects.toMatchObject({ code: 'unexpected_answer', status, message: expect.stringContaining('see the url') })
  })

  it.each([
    { offset: -1 },
    { offset: 0.5 },
    { offset: Number.NaN, length: 1 },
    { offset: 0, length: 0 },
    { offset: 0, length: 1.5 },
  ])('is told of the range %o before anything is sent', async (range) => {
    const { sent, options } = scripted([])
    await expect(createBlobStore(options).get(fileKey('a'), { range })).rejects.toThrow(RangeError)
    expect(sent).toEqual([])
  })
})
