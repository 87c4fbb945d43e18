import { CairnError, refusal } from './errors.js'

/** Where a Cairn server is and how it is asked. */
export interface ConnectionOptions {
  /** Address of the server, such as `https://cairn.example.com`; it may have a path. */
  url: string | URL
  /**
   * A token with the scopes `checkpoint:read` and `checkpoint:write` and a claim for
   * the thread, or for every thread (`*`). A function is called for each attempt.
   */
  token: string | (() => string | Promise<string>)
  /** Milliseconds without progress after which an attempt is given up: 30,000 unless set. */
  timeoutMs?: number
  /** Attempts after the first, when that failed for a reason that passes: 4 unless set. */
  retries?: number
  /** Ends every call under way and refuses further ones. */
  signal?: AbortSignal
  /** In place of the global `fetch`, for example that of a service binding. */
  fetch?: (url: string, init: RequestInit) => Promise<Response>
}

/** What each method takes beside its arguments. */
export interface CallOptions {
  /** Ends the call. What it had sent may still take effect. */
  signal?: AbortSignal
}

/** One request. All are safe to send again: by what they do, or by `once`. */
export interface Request<T> extends CallOptions {
  method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE'
  /** Segments of the path below `/api/`. */
  path: readonly string[]
  query?: Readonly<Record<string, string | undefined>>
  json?: unknown
  bytes?: Body
  /** Send a key that makes the request happen once, however often it arrives. */
  once?: boolean
  headers?: Readonly<Record<string, string>>
  /** Reads the answer to a request that succeeded, as part of the attempt. */
  read: (answer: Answer) => Promise<T> | T
}

/** What fetch sends. Node's types know it by this name alone. */
type Body = NonNullable<RequestInit['body']>

type Prepared<T> = Request<T> & { body: Body | undefined }

/** An answer whose body may take its time, as long as it comes on. */
export interface Answer {
  status: number
  headers: Headers
  bytes: () => Promise<Uint8Array<ArrayBuffer>>
}

const firstDelay = 200
const longestDelay = 5_000
const longestWait = 30_000 // that a server may ask for
const longestTimer = 2 ** 31 - 1 // of a runtime

/** Asks one server: tokens, deadlines, further attempts. */
export class Connection {
  readonly #base: string
  readonly #options: ConnectionOptions

  constructor(options: ConnectionOptions) {
    const base = new URL(options.url)
    if (base.protocol !== 'http:' && base.protocol !== 'https:') {
      throw new TypeError(`the url of Cairn has to begin with http:// or https://, not ${base.protocol}`)
    }
    if (base.username || base.password || base.search || base.hash) {
      throw new TypeError('the url of Cairn is an address alone: the token is an option of its own')
    }
    this.#base = base.href.replace(/\/+$/, '')
    this.#options = options
  }

  /** Sends a request until it is answered, refused or given up. */
  async send<T>(request: Request<T>): Promise<T> {
    // Made at once: what the caller changes later is not sent.
    const body = request.json === undefined ? request.bytes : JSON.stringify(request.json)
    const stop = new AbortController()
    const signals = [this.#options.signal, request.signal].filter((signal) => signal !== undefined)
    const end = () => stop.abort(signals.find((signal) => signal.aborted)?.reason)
    signals.forEach((signal) => signal.addEventListener('abort', end))
    try {
      if (signals.some((signal) => signal.aborted)) end()
      return await this.#attempts({ ...request, body }, stop.signal)
    } finally {
      signals.forEach((signal) => signal.removeEventListener('abort', end))
    }
  }

  async #attempts<T>(request: Prepared<T>, signal: AbortSignal): Promise<T> {
    const key = request.once ? crypto.randomUUID() : undefined
    const retries = request.body instanceof ReadableStream ? 0 : (this.#options.retries ?? 4)
    for (let attempt = 0; ; attempt++) {
      signal.throwIfAborted()
      try {
        return await this.#attempt(request, key, signal)
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof CairnError) || error.retryAfterMs === undefined) throw error
        if (attempt >= retries || error.retryAfterMs > longestWait) throw error
        const backoff = Math.min(firstDelay * 2 ** attempt, longestDelay) * (0.5 + Math.random() / 2)
        await sleep(Math.max(backoff, error.retryAfterMs), signal)
      }
    }
  }

  async #attempt<T>(request: Prepared<T>, key: string | undefined, signal: AbortSignal): Promise<T> {
    const { token } = this.#options
    const bearer = typeof token === 'function' ? await token() : token
    const deadline = new Deadline(this.#options.timeoutMs ?? 30_000, signal)
    try {
      deadline.extend(sendingMs(request.body))
      const ask = this.#options.fetch ?? fetch
      const response = await reached(() => ask(this.#url(request), this.#init(request, bearer, key, deadline.signal)))
      deadline.extend()
      const bytes = () => reached(() => content(response, deadline))
      if (!response.ok) throw await refusal(response.status, response.headers, await bytes())
      return await request.read({ status: response.status, headers: response.headers, bytes })
    } catch (error) {
      if (!deadline.passed) throw error
      throw new CairnError('timeout', 'Cairn did not answer in time', { retryAfterMs: 0, cause: error })
    } finally {
      deadline.end()
    }
  }

  #url(request: Request<unknown>): string {
    const query = new URLSearchParams()
    for (const [name, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined) query.set(name, value)
    }
    const path = request.path.map(encodeURIComponent).join('/')
    return `${this.#base}/api/${path}${query.size > 0 ? `?${query}` : ''}`
  }

  #init(request: Prepared<unknown>, bearer: string, key: string | undefined, signal: AbortSignal): RequestInit {
    const headers = new Headers(request.headers)
    headers.set('Authorization', `Bearer ${bearer}`)
    if (key !== undefined) headers.set('Idempotency-Key', key)
    const init: RequestInit = { method: request.method, headers, signal, redirect: 'manual' }
    if (request.body !== undefined) {
      headers.set('Content-Type', request.json === undefined ? 'application/octet-stream' : 'application/json')
      init.body = request.body
      if (request.body instanceof ReadableStream) Object.assign(init, { duplex: 'half' })
    }
    return init
  }
}

/** Reads an answer's JSON. */
export async function json<T>(answer: Answer): Promise<T> {
  const text = new TextDecoder().decode(await answer.bytes())
  try {
    return JSON.parse(text) as T
  } catch (cause) {
    throw new CairnError('unexpected_answer', 'what answered is not Cairn: see the url', { status: answer.status, cause })
  }
}

/** Reads nothing of an answer. */
export async function nothing(answer: Answer): Promise<void> {
  await answer.bytes()
}

/** Does a step of the network. Runtimes differ in what they reject with when it fails. */
async function reached<T>(step: () => Promise<T>): Promise<T> {
  try {
    return await step()
  } catch (cause) {
    throw new CairnError('unreachable', `Cairn could not be reached: ${reason(cause)}`, { retryAfterMs: 0, cause })
  }
}

/** Why a step failed: fetch says no more than that it did, and has the reason as its cause. */
function reason(error: unknown): string {
  const { message, cause } = error as { message?: unknown; cause?: { message?: unknown; code?: unknown } }
  const deepest = cause?.message || cause?.code || message
  return typeof deepest === 'string' && deepest !== '' ? deepest : 'the network failed'
}

/** A time that is put off as long as there is progress. */
class Deadline {
  readonly #stop = new AbortController()
  readonly #limit: number
  readonly #outer: AbortSignal
  readonly #end = () => this.#stop.abort(this.#outer.reason)
  #timer: ReturnType<typeof setTimeout> | undefined
  passed = false

  constructor(limit: number, outer: AbortSignal) {
    this.#limit = limit
    this.#outer = outer
    outer.addEventListener('abort', this.#end)
    if (outer.aborted) this.#end()
  }

  get signal(): AbortSignal {
    return this.#stop.signal
  }

  extend(more = 0): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => {
      this.passed = true
      this.#stop.abort()
    }, Math.min(this.#limit + more, longestTimer))
  }

  end(): void {
    clearTimeout(this.#timer)
    this.#outer.removeEventListener('abort', this.#end)
  }
}

/** How long sending a body may take, at 1 MiB a second: fetch tells no progress of that. */
function sendingMs(body: Body | undefined): number {
  if (body instanceof ReadableStream) return longestTimer
  if (body instanceof Blob) return body.size / 1_048.576
  if (body instanceof ArrayBuffer || ArrayBuffer.isView(body)) return body.byteLength / 1_048.576
  return 0
}

async function content(response: Response, deadline: Deadline): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = []
  let size = 0
  if (response.body !== null) {
    const reader = response.body.getReader()
    for (;;) {
      const { done, value } = await reader.read()
      if (done) break
      deadline.extend()
      parts.push(value)
      size += value.byteLength
    }
  }
  const whole = new Uint8Array(size)
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.byteLength
  }
  return whole
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer)
      reject(signal.reason)
    }
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', end)
      resolve()
    }, ms)
    signal.addEventListener('abort', end, { once: true })
  })
}
