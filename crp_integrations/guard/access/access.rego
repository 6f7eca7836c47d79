# Who may do what with things of which labels. What nothing here allows is denied.
# Data: access.json. Input: subject {tenant, name, roles}, action, resource {tenant, labels}.
# A body holds all of its conditions, and names what it reads twice, because the interpreter pays
# for each rule and each path that it looks up. Nothing reads the subject's name, nor the subject as
# a whole, so all who have the same roles are one class.
package crp.access

import rego.v1

default decision := {
	"allow": false,
	"reason": "a label is not granted to the subject",
}

# Every label is granted to one of the subject's roles, or to everybody.
decision := {"allow": true, "redact": redact} if {
	resource := input.resource
	resource.tenant == input.subject.tenant
	labels := resource.labels
	count(labels) > 0
	who := array.concat(["*"], input.subject.roles)
	covered := {label: of | some label in labels; of := data.labels[label]; some role in of[input.action]; role in who}
	count(covered) == count(labels)

	# Kinds of personal data that must be gone from a text before the subject reads it.
	redact := [kind | some of in covered; kinds := of.redact; count([role | some role in data.unredacted; role in who]) == 0; some kind in kinds]
} else := {"allow": true, "redact": redact} if {
	# Roles that are granted every label but a tenant's name.
	count([one | some one in data.every_label; one in input.subject.roles]) > 0
	input.resource.tenant == input.subject.tenant
	input.action in {"read", "write", "erase"}
	labels := input.resource.labels
	count(labels) > 0
	count({label | some label in labels; startswith(label, "tenant:")}) == 0
	redact := [kind | some label in labels; kinds := data.labels[label].redact; count([role | some role in data.unredacted; role in input.subject.roles]) == 0; some kind in kinds]
}
