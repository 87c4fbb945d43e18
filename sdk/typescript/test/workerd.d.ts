/** The path of the workerd program. */
declare module 'workerd' {
  const path: string
  export default path
}
