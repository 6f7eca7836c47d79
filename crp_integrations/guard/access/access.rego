# Who may do what with things of which labels. What nothing here allows is denied.
# Data: access.json. Input: subject {tenant, name, roles}, action, resource {tenant, labels}.
# A body holds all of its conditions because the interpreter pays for each rule that it looks up.
package crp.access

import rego.v1

default decision := {
	"allow": false,
	"reason": "a label is not granted to the subject",
}

# Every label is granted to one of the subject's roles, or to everybody.
decision := {"allow": true, "redact": redact} if {
	input.resource.tenant == input.subject.tenant
	labels := input.resource.labels
	count(labels) > 0
	who := array.concat(["*"], input.subject.roles)
	covered := {label | some label in labels; some role in data.labels[label][input.action]; role in who}
	count(covered) == count(labels)

	# Kinds of personal data that must be gone from a text before the subject reads it.
	exempt := [role | some role in data.unredacted; role in who]
	redact := [kind | count(exempt) == 0; some label in labels; some kind in data.labels[label].redact]
} else := {"allow": true, "redact": redact} if {
	# Roles that are granted every label but a tenant's name.
	some one in input.subject.roles
	one in data.every_label
	input.resource.tenant == input.subject.tenant
	input.action in {"read", "write", "erase"}
	labels := input.resource.labels
	count(labels) > 0
	count({label | some label in labels; startswith(label, "tenant:")}) == 0
	exempt := [role | some role in data.unredacted; role in input.subject.roles]
	redact := [kind | count(exempt) == 0; some label in labels; some kind in data.labels[label].redact]
}
