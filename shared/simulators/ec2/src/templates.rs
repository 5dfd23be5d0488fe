//! Launch templates of the twin. Each has one version: Tenon's are named by their content.

use super::call::Call;
use super::random::draw;
use super::state::{TwinState, error};
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{CreateLaunchTemplate, LaunchTemplate, LaunchTemplateData, LaunchTemplateFilter};

/// EC2's limit on decoded user data, in bytes.
const USER_DATA_MAX: usize = 16_384;

#[derive(Debug)]
pub(super) struct TwinTemplate {
    pub(super) template: LaunchTemplate,
    pub(super) data: LaunchTemplateData,
}

impl TwinState {
    pub(super) fn create_template(&mut self, new: &CreateLaunchTemplate) -> Result<LaunchTemplate, Ec2Error> {
        let refused = |code, message: &str| Err(error(Call::CreateLaunchTemplate, code, message));
        let name = &new.name;
        let allowed = |c: char| c.is_ascii_alphanumeric() || "()./_-".contains(c);
        if !(3..=128).contains(&name.len()) || !name.chars().all(allowed) {
            return refused(
                "InvalidLaunchTemplateName.MalformedException",
                &format!("The name '{name}' is not valid."),
            );
        }
        if self.templates.contains_key(name) {
            return refused(
                "InvalidLaunchTemplateName.AlreadyExistsException",
                "Launch template name already in use.",
            );
        }
        let user_data = new.data.user_data.as_deref().unwrap_or_default();
        if user_data.trim_end_matches('=').len().saturating_mul(3) / 4 > USER_DATA_MAX {
            return refused("InvalidUserData.Malformed", "User data is limited to 16384 bytes");
        }
        let number = self.number().to_string();
        let template = LaunchTemplate {
            id: format!("lt-0{:016x}", draw(self.config.seed, &["template", &number])),
            name: name.clone(),
            version: 1,
            created_at: self.now,
            tags: new.tags.clone(),
        };
        self.templates
            .insert(name.clone(), TwinTemplate { template: template.clone(), data: new.data.clone() });
        Ok(template)
    }

    pub(super) fn templates_matching(
        &self,
        filter: &LaunchTemplateFilter,
    ) -> Result<Vec<LaunchTemplate>, Ec2Error> {
        for name in &filter.names {
            self.template(Call::DescribeLaunchTemplates, name)?;
        }
        let named = |t: &&LaunchTemplate| filter.names.is_empty() || filter.names.contains(&t.name);
        let tagged = |t: &&LaunchTemplate| filter.tags.iter().all(|f| f.matches(&t.tags));
        Ok(self.templates.values().map(|t| &t.template).filter(named).filter(tagged).cloned().collect())
    }

    pub(super) fn delete_template(&mut self, name: &str) -> Result<(), Ec2Error> {
        self.template(Call::DeleteLaunchTemplate, name)?;
        self.templates.remove(name);
        Ok(())
    }

    pub(super) fn template(&self, call: Call, name: &str) -> Result<&TwinTemplate, Ec2Error> {
        self.templates.get(name).ok_or_else(|| {
            let message =
                format!("The specified launch template, with template name '{name}', does not exist.");
            error(call, "InvalidLaunchTemplateName.NotFoundException", &message)
        })
    }

    /// A template by name and version: `$Latest`, `$Default` or its number.
    pub(super) fn template_version(
        &self,
        call: Call,
        name: &str,
        version: &str,
    ) -> Result<&TwinTemplate, Ec2Error> {
        let template = self.template(call, name)?;
        if version == "$Latest" || version == "$Default" || version == template.template.version.to_string() {
            return Ok(template);
        }
        let message = format!("Could not find launch template version '{version}' of '{name}'");
        Err(error(call, "InvalidLaunchTemplateId.VersionNotFound", &message))
    }
}
