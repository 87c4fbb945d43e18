import { Connection, json, type Answer, type CallOptions, type ConnectionOptions } from './connection.js'
import { tanstack } from './errors.js'

/** What is known of a stored blob. */
export interface BlobRecord {
  key: string
  size: number
}

/** A blob, read whole or in part. */
export interface BlobObject extends BlobRecord {
  /** The part that was read, when one was asked for; `size` is that of the whole. */
  range?: { offset: number; length: number }
  arrayBuffer: () => Promise<ArrayBuffer>
  text: () => Promise<string>
  body: ReadableStream<Uint8Array>
}

/** The blob store that TanStack's checkpoints need. Cairn removes what no checkpoint names by itself. */
export interface BlobStore {
  /**
   * A blob, or null. It is in memory as a whole: take ranges of large ones. A range has at
   * least one byte, and begins within the blob.
   */
  get: (key: string, options?: CallOptions & { range?: { offset: number; length?: number } }) => Promise<BlobObject | null>
  /** What is known of a blob, or null. */
  head: (key: string, options?: CallOptions) => Promise<BlobRecord | null>
  /** Stores bytes under the key that ends in their SHA-256; Cairn refuses others. */
  put: (
    key: string,
    body: ReadableStream<Uint8Array> | ArrayBuffer | ArrayBufferView<ArrayBuffer> | Blob | string,
    options?: CallOptions,
  ) => Promise<BlobRecord>
}

/** How a blob store works. */
export interface BlobStoreOptions extends ConnectionOptions {
  /** The thread that the blobs are of. With a token for every thread it may be left out: they are then of all. */
  threadId?: string
}

/** Keeps the bytes of TanStack's checkpoints in Cairn. */
export function createBlobStore(options: BlobStoreOptions): BlobStore {
  const cairn = new Connection(options)
  const query = { thread: options.threadId }
  return {
    async get(key, { range, ...call } = {}) {
      const path = await pathOf(key)
      const headers = range === undefined ? {} : { Range: rangeHeader(range) }
      const read = async (answer: Answer) => object(key, answer, await answer.bytes())
      return present('GET', cairn.send({ ...call, method: 'GET', path, query, headers, read }))
    },
    async head(key, call) {
      const path = await pathOf(key)
      const read = (answer: Answer) => ({ key, size: Number(answer.headers.get('Content-Length')) })
      return present('HEAD', cairn.send<BlobRecord>({ ...call, method: 'HEAD', path, query, read }))
    },
    async put(key, body, call) {
      const path = await pathOf(key)
      const { size } = await cairn.send<BlobRecord>({ ...call, method: 'PUT', path, query, bytes: body, read: json })
      return { key, size }
    },
  }
}

const keys = /^sandbox-(?:files|artifacts)\/sha256\/[0-9a-f]{64}$/

/** The segments of a blob's address. */
async function pathOf(key: string): Promise<string[]> {
  if (keys.test(key)) return ['blobs', ...key.split('/')]
  throw await tanstack(
    'SANDBOX_SNAPSHOT_INVALID_BLOB',
    `Cairn keeps blobs under sandbox-files/sha256/… and sandbox-artifacts/sha256/…, not ${JSON.stringify(key)}`,
  )
}

function rangeHeader({ offset, length }: { offset: number; length?: number }): string {
  if (!Number.isSafeInteger(offset) || offset < 0 || (length !== undefined && (!Number.isSafeInteger(length) || length < 1))) {
    throw new RangeError(`a range has a whole offset and at least one byte, not offset ${offset} and length ${length}`)
  }
  return `bytes=${offset}-${length === undefined ? '' : offset + length - 1}`
}

function object(key: string, answer: Answer, bytes: Uint8Array<ArrayBuffer>): BlobObject {
  const part = /^bytes (\d+)-\d+\/(\d+)$/.exec(answer.headers.get('Content-Range') ?? '')
  return {
    key,
    size: part === null ? bytes.byteLength : Number(part[2]),
    ...(part === null ? {} : { range: { offset: Number(part[1]), length: bytes.byteLength } }),
    arrayBuffer: async () => bytes.slice().buffer,
    text: async () => new TextDecoder().decode(bytes),
    get body() {
      return new Blob([bytes]).stream()
    },
  }
}

/** Null in place of a refusal that says that there is no such blob. */
async function present<T>(method: 'GET' | 'HEAD', answer: Promise<T>): Promise<T | null> {
  try {
    return await answer
  } catch (error) {
    const { code, status } = error as { code?: unknown; status?: unknown }
    // The answer to HEAD has no body that tells the code.
    if (code === 'SANDBOX_SNAPSHOT_MISSING_BLOB' || (method === 'HEAD' && status === 404)) return null
    throw error
  }
}
