# Who may do what with things of which labels. What nothing here allows is denied.
# Data: access.json. Input: subject {tenant, name, roles}, action, resource {tenant, labels}.
# The interpreter pays for each field that it passes on its way to the one that is named, for calls,
# and for whatever does not hang on a scan, which it evaluates before the scan. So what a role is
# granted is looked up once, the data have what is asked for most in the first place, most decisions
# call one function and no builtin, and what few need is called with what a scan found.
# Nothing reads the subject's name, nor the subject as a whole, so all who have the same roles are
# one class.
package crp.access

import rego.v1

default decision := {
	"allow": false,
	"reason": "a label is not granted to the subject",
}

# Every label is granted; kinds of personal data must be gone from a text before it is read.
decision := {"allow": allow, "redact": redact} if {
	resource := input.resource
	resource.tenant == input.subject.tenant
	labels := resource.labels
	labels[0]
	roles := input.subject.roles
	allow := granted(labels, roles)
	redact := [kind |
		rules := data.redact
		some label in labels
		rule := rules[label]
		not shown(rule, roles)
		some kind in rule.kinds
	]
}

# Each label is granted to one of the roles, or all labels are, or each to a role or everybody.
granted(labels, roles) if {
	action := input.action
	tables := [theirs | some role in roles; theirs := data.granted[role][action]]
	every label in labels {
		some theirs in tables
		theirs[label]
	}
} else := without_tenant(data.every_label[role][input.action], labels) if {
	some role in roles
} else := with_everybody(everybodys[label], labels, roles) if {
	everybodys := data.granted["*"][input.action]
	some label in labels
}

# Some roles are granted whatever the label, unless it is a tenant's name.
without_tenant(true, labels) if {
	every label in labels {
		is_string(label)
		startswith(label, "tenant:") == false
	}
}

# What everybody is granted need not be listed for each role; where it is, this is not asked for.
with_everybody(true, labels, roles) if {
	action := input.action
	who := array.concat(["*"], roles)
	tables := [theirs | some role in who; theirs := data.granted[role][action]]
	every label in labels {
		some theirs in tables
		theirs[label]
	}
}

# One of the roles reads personal data as they are.
shown(rule, roles) if {
	some role in roles
	rule.unless[role]
}
