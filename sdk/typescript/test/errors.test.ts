// Which errors are thrown, with and without TanStack's classes: in programs of
// their own, each with what an application may have installed.
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'

const root = new URL('..', import.meta.url).pathname
const world = mkdtempSync(join(tmpdir(), 'errors-'))
afterAll(() => rmSync(world, { recursive: true }))

const words = {
  STALE_HEAD: 'SandboxCheckpointConflictError',
  DUPLICATE_ID: 'SandboxCheckpointDuplicateIdError',
  INVALID_ID: 'SandboxCheckpointInvalidIdError',
  INVALID_ENTRY: 'SandboxCheckpointInvalidEntryError',
  PARENT_MISMATCH: 'SandboxCheckpointParentMismatchError',
  NOT_HEAD: 'SandboxCheckpointNotHeadError',
  WRITER_CONFLICT: 'SandboxCheckpointWriterConflictError',
  WRITER_LOST: 'SandboxCheckpointWriterLostError',
  FORK_SOURCE_NOT_FOUND: 'SandboxCheckpointError',
  FORK_SOURCE_THREAD_MISMATCH: 'SandboxCheckpointError',
  FORK_DESTINATION_NOT_EMPTY: 'SandboxCheckpointError',
  MISSING_BLOB: 'SandboxSnapshotError',
  INVALID_BLOB: 'SandboxSnapshotError',
  SOMETHING_NEW: 'SandboxSnapshotError',
}

const program = `
import { createCheckpointStore } from '@cairnstate/tanstack-ai'
const theirs = await import('@tanstack/ai-sandbox').catch(() => ({}))
const told = {}
for (const code of process.argv.slice(2)) {
  const body = JSON.stringify({ code: 'SANDBOX_SNAPSHOT_' + code, error: 'told why' })
  const store = createCheckpointStore({ url: 'https://cairn.test', token: 't', fetch: async () => new Response(body, { status: 409 }) })
  const error = await store.acquireWriter('a').then(() => null, (error) => error)
  const classes = Object.keys(theirs).filter((name) => theirs[name].prototype instanceof Error && error instanceof theirs[name])
  told[code] = { text: String(error), name: error.name, code: error.code, message: error.message, cause: error.cause.name, status: error.cause.status, isError: error instanceof Error, classes }
}
console.log(JSON.stringify(told))
`

/** What a program throws for each code, with a version of TanStack's package or none. */
function thrown(name: string, install: (modules: string) => void): Record<string, { classes: string[] }> {
  const dir = join(world, name)
  const adapter = join(dir, 'node_modules/@cairnstate/tanstack-ai')
  mkdirSync(join(dir, 'node_modules/@tanstack'), { recursive: true })
  for (const part of ['dist', 'package.json']) cpSync(join(root, part), join(adapter, part), { recursive: true })
  install(join(dir, 'node_modules/@tanstack/ai-sandbox'))
  writeFileSync(join(dir, 'program.mjs'), program)
  const out = execFileSync(process.execPath, ['program.mjs', ...Object.keys(words)], { cwd: dir, encoding: 'utf8' })
  return JSON.parse(out) as Record<string, { classes: string[] }>
}

const expected = (code: string, name: string) => ({
  text: `${name}: told why`,
  name,
  code: `SANDBOX_SNAPSHOT_${code}`,
  message: 'told why',
  cause: 'CairnError',
  status: 409,
  isError: true,
})

describe('errors', () => {
  it.each<[string, (modules: string) => void]>([
    ['absent', () => undefined],
    ['published', (modules) => symlinkSync(join(root, 'node_modules/@tanstack/ai-sandbox'), modules)],
    [
      'other',
      (modules) => {
        mkdirSync(modules)
        writeFileSync(join(modules, 'package.json'), '{"type":"module","exports":"./index.js"}')
        const other = (name: string) => `export class ${name} extends Error { code = 'SOMETHING_ELSE' }\n`
        writeFileSync(join(modules, 'index.js'), [...new Set(Object.values(words))].map(other).join(''))
      },
    ],
  ])('have the names and codes where the classes are %s', (name, install) => {
    const told = thrown(name, install)
    for (const [code, word] of Object.entries(words)) expect(told[code]).toEqual({ ...expected(code, word), classes: [] })
  })

  it('are of the classes where they are there', () => {
    const told = thrown('present', (modules) => cpSync(join(root, 'build/tanstack'), modules, { recursive: true }))
    for (const [code, word] of Object.entries(words)) {
      const { classes, ...rest } = told[code]!
      expect(rest).toEqual(expected(code, word))
      expect(classes).toContain(word)
    }
  })
})
