/** What a refusal or failure of Cairn tells beside its message. */
export interface CairnErrorDetails {
  /** Status of the answer; absent where there was none. */
  status?: number
  /** There when the reason may pass: how long the server asks to wait, or 0. */
  retryAfterMs?: number
  /** Keys of blobs that an append names and that Cairn does not have. */
  missing?: readonly string[]
  cause?: unknown
}

/**
 * A call that failed for a reason that is none of TanStack's: a refused token, a
 * quota, a server that cannot be reached. `code` is Cairn's word for it, or
 * `unreachable` or `timeout`. It is also the `cause` of TanStack's errors.
 */
export class CairnError extends Error {
  readonly code: string
  readonly status: number | undefined
  readonly retryAfterMs: number | undefined
  readonly missing: readonly string[]

  constructor(code: string, message: string, details: CairnErrorDetails = {}) {
    super(message, { cause: details.cause })
    this.name = 'CairnError'
    this.code = code
    this.status = details.status
    this.retryAfterMs = details.retryAfterMs
    this.missing = details.missing ?? []
  }
}

const passing = new Set([408, 425, 429, 502, 503, 504])

/** The error that an answer other than success stands for. */
export async function refusal(status: number, headers: Headers, body: Uint8Array): Promise<Error> {
  const told = parse(body)
  const code = typeof told.code === 'string' ? told.code : 'unexpected_answer'
  const message = typeof told.error === 'string' ? told.error : `what answered with status ${status} is not Cairn, or a proxy before it: see the url`
  const seconds = Number(headers.get('Retry-After'))
  const error = new CairnError(code, message, {
    status,
    ...(passing.has(status) ? { retryAfterMs: seconds > 0 ? seconds * 1000 : 0 } : {}),
    ...(Array.isArray(told.missing) ? { missing: told.missing.map(String) } : {}),
  })
  return code.startsWith('SANDBOX_SNAPSHOT_') ? tanstack(code, message, error) : error
}

function parse(body: Uint8Array): { code?: unknown; error?: unknown; missing?: unknown } {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(body))
    return typeof value === 'object' && value !== null ? value : {}
  } catch {
    return {}
  }
}

/** The class that TanStack AI throws for a code of its checkpoint store. */
const classes: Readonly<Record<string, string>> = {
  SANDBOX_SNAPSHOT_STALE_HEAD: 'SandboxCheckpointConflictError',
  SANDBOX_SNAPSHOT_DUPLICATE_ID: 'SandboxCheckpointDuplicateIdError',
  SANDBOX_SNAPSHOT_INVALID_ID: 'SandboxCheckpointInvalidIdError',
  SANDBOX_SNAPSHOT_INVALID_ENTRY: 'SandboxCheckpointInvalidEntryError',
  SANDBOX_SNAPSHOT_PARENT_MISMATCH: 'SandboxCheckpointParentMismatchError',
  SANDBOX_SNAPSHOT_NOT_HEAD: 'SandboxCheckpointNotHeadError',
  SANDBOX_SNAPSHOT_WRITER_CONFLICT: 'SandboxCheckpointWriterConflictError',
  SANDBOX_SNAPSHOT_WRITER_LOST: 'SandboxCheckpointWriterLostError',
  SANDBOX_SNAPSHOT_CHECKPOINT_NOT_FOUND: 'SandboxCheckpointError',
  SANDBOX_SNAPSHOT_FORK_SOURCE_NOT_FOUND: 'SandboxCheckpointError',
  SANDBOX_SNAPSHOT_FORK_SOURCE_THREAD_MISMATCH: 'SandboxCheckpointError',
  SANDBOX_SNAPSHOT_FORK_DESTINATION_NOT_EMPTY: 'SandboxCheckpointError',
  SANDBOX_SNAPSHOT_ATOMIC_FORK_REQUIRED: 'SandboxCheckpointError',
}

/**
 * TanStack's error for a code: of its own class when the installed
 * `@tanstack/ai-sandbox` exports it, else one with the same name and code.
 */
export async function tanstack(code: string, message: string, cause?: unknown): Promise<Error> {
  const name = classes[code] ?? 'SandboxSnapshotError'
  const error = theirs(await exported(), name, code, message) ?? Object.assign(new Error(message), { code })
  Object.defineProperty(error, 'name', { value: name, configurable: true, writable: true })
  if (cause !== undefined) Object.defineProperty(error, 'cause', { value: cause, configurable: true, writable: true })
  return error
}

async function exported(): Promise<Readonly<Record<string, unknown>>> {
  try {
    return await import('@tanstack/ai-sandbox')
  } catch {
    return {} // it is optional
  }
}

/** An error of an exported class, if there is one that carries the code. */
function theirs(from: Readonly<Record<string, unknown>>, name: string, code: string, message: string): Error | undefined {
  const type = from[name] as (new (...args: string[]) => Error & { code?: unknown }) | undefined
  if (typeof type !== 'function') return undefined
  for (const args of [[message], [code, message]]) {
    const error = new type(...args)
    if (error.code === code && error.message === message) return error
  }
  return undefined
}
