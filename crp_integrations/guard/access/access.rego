# Who may do what with things of which labels. What nothing here allows is denied.
# Data: access.json. Input: subject {tenant, name, roles}, action, resource {tenant, labels}.
# The interpreter pays for calls, for names that are given to values, and for whatever does not hang
# on a scan, which it evaluates before the scan. So what is granted is looked up in objects, most
# decisions call two functions and no builtin, and what few need is called with what a scan found.
# Nothing reads the subject's name, nor the subject as a whole, so all who have the same roles are
# one class.
package crp.access

import rego.v1

default decision := {
	"allow": false,
	"reason": "a label is not granted to the subject",
}

# Every label is granted; kinds of personal data must be gone from a text before it is read.
decision := {"allow": true, "redact": redact} if {
	resource := input.resource
	resource.tenant == input.subject.tenant
	labels := resource.labels
	labels[0]
	roles := input.subject.roles
	granted(labels, roles)
	redact := [kind |
		rules := data.redact
		some label in labels
		rule := rules[label]
		not shown(rule, roles)
		some kind in rule.kinds
	]
}

# Each label is granted to one of the roles, or to one of them or everybody, or all labels are.
granted(labels, roles) if {
	theirs := data.granted[input.action]
	every label in labels {
		some role in roles
		theirs[label][role]
	}
} else := with_everybody(theirs[label]["*"], theirs, labels, roles) if {
	theirs := data.granted[input.action]
	some label in labels
} else := without_tenant(data.every_label[role][input.action], labels) if {
	some role in roles
}

# What everybody is granted need not be listed for each role; where it is, this is not asked for.
with_everybody(true, theirs, labels, roles) if {
	who := array.concat(["*"], roles)
	every label in labels {
		some role in who
		theirs[label][role]
	}
}

# Some roles are granted whatever the label, unless it is a tenant's name.
without_tenant(true, labels) if strings.any_prefix_match(labels, "tenant:") == false

# One of the roles reads personal data as they are.
shown(rule, roles) if {
	some role in roles
	rule.unless[role]
}
