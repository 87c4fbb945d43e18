// A running Cairn server for the tests.
import { randomUUID } from 'node:crypto'
import type { ConnectionOptions } from '@cairnstate/tanstack-ai'
import type { Clock } from './conformance.js'

const url = process.env.CAIRN_TEST_URL ?? ''

/** How to ask a fresh org whose leases go by the clock. */
export async function freshOrg(clock: Clock): Promise<ConnectionOptions> {
  const token = randomUUID()
  let set = 0
  return {
    url,
    token,
    async fetch(to, init) {
      if (clock.now !== set) {
        set = clock.now
        await fetch(`${url}/api/clock`, { method: 'POST', body: JSON.stringify(clock), headers: { Authorization: `Bearer ${token}` } })
      }
      return fetch(to, init)
    },
  }
}
