# Who may do what with things of which labels. What nothing here allows is denied.
# Data: access.json. Input: subject {tenant, name, roles}, action, resource {tenant, labels}.
# What is granted is looked up in objects, without `in` and `count`, whose calls cost the interpreter
# most; what few need is a rule of its own. Nothing reads the subject's name, nor the subject as a
# whole, so all who have the same roles are one class.
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
	labels[0]
	action := input.action
	known := data.labels
	roles := input.subject.roles
	who := array.concat(["*"], roles)
	every label in labels {
		granted := known[label][action]
		some role in who
		granted[role]
	}
	redact := [kind | some label in labels; some kind in hidden(known[label].redact, roles)]
} else := everything if {
	some role in input.subject.roles
	data.every_label[role][input.action]
}

# What some roles are granted whatever the label, unless it is a tenant's name.
everything := {"allow": true, "redact": redact} if {
	resource := input.resource
	resource.tenant == input.subject.tenant
	labels := resource.labels
	labels[0]
	count({label | some label in labels; startswith(label, "tenant:")}) == 0
	redact := [kind | some label in labels; some kind in hidden(data.labels[label].redact, input.subject.roles)]
}

# Kinds of personal data that must be gone from a text before the subject reads it.
hidden(kinds, roles) := [] if {
	some role in roles
	data.unredacted[role]
} else := kinds
