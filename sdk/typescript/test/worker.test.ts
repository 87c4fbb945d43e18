// The adapter in workerd, the runtime of Cloudflare Workers.
import { spawn } from 'node:child_process'
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import workerd from 'workerd'
import { freshOrg } from './world.js'

const root = new URL('..', import.meta.url).pathname

/** A port that nobody listens on. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  return (address as { port: number }).port
}

/** Configuration of workerd: the worker, the adapter as it is published, and bindings. */
function config(port: number, files: string[], bindings: Record<string, string>): string {
  const text = JSON.stringify
  const module = (file: string) => `(name = ${text(file)}, esModule = embed ${text(file)})`
  const binding = ([name, value]: [string, string]) => `(name = ${text(name)}, text = ${text(value)})`
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .worker), (name = "internet", network = (allow = ["private", "local"]))],
  sockets = [(name = "http", address = "127.0.0.1:${port}", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  compatibilityDate = "2026-01-01",
  modules = [${files.map(module).join(', ')}],
  bindings = [${Object.entries(bindings).map(binding).join(', ')}],
);
`
}

/** The answer of a server that is about to start. */
async function answerOf(url: string): Promise<unknown> {
  for (const end = Date.now() + 20_000; ; await new Promise((resolve) => setTimeout(resolve, 50))) {
    try {
      return await (await fetch(url)).json()
    } catch (error) {
      if (Date.now() > end) throw error
    }
  }
}

it('runs in Workers', async () => {
  const org = await freshOrg()
  const dir = mkdtempSync(join(tmpdir(), 'worker-'))
  const port = await freePort()
  const bindings = { URL: String(org.url), TOKEN: org.token, DEAD: `http://127.0.0.1:${await freePort()}` }
  cpSync(join(root, 'test/worker/worker.js'), join(dir, 'worker.js'))
  cpSync(join(root, 'dist'), join(dir, 'adapter'), { recursive: true })
  const adapter = readdirSync(join(dir, 'adapter')).filter((name) => name.endsWith('.js'))
  writeFileSync(join(dir, 'config.capnp'), config(port, ['worker.js', ...adapter.map((name) => `adapter/${name}`)], bindings))
  const server = spawn(workerd, ['serve', 'config.capnp'], { cwd: dir, stdio: ['ignore', 'inherit', 'inherit'] })
  try {
    expect(await answerOf(`http://127.0.0.1:${port}/`)).toEqual({
      refused: { name: 'SandboxCheckpointDuplicateIdError', code: 'SANDBOX_SNAPSHOT_DUPLICATE_ID' },
      size: 19,
      text: 'written by a Worker',
      part: 'Worker',
      fork: 'fork-root',
      head: 'w1',
      list: ['w1'],
      references: [2],
      gone: null,
      unreachable: 'unreachable',
      late: 'timeout',
    })
  } finally {
    server.kill()
    rmSync(dir, { recursive: true })
  }
})
